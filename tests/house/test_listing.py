"""What lies in the house, and what no file of it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import simulator

ROOT = Path(__file__).parents[2]
TOP = {
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"),
    *("simulator", "topologies", "tests", "scenarios", "notebooks"),
}
MADE = {"out", "build", "dist"}
"""What commands make and git ignores."""

SUFFIXES = {".py", ".md", ".yaml", ".json", ".toml", ".ipynb", ".txt", ""}
ELSEWHERE = re.compile(
    r"/(?:home|root|Users|mnt|srv|w[o]rk|f[a]rm|t[m]p)/|site-pac[k]ages|pypi\.\w"
)
"""Paths and hosts of some machine; the project speaks of itself alone."""


def files() -> Iterator[Path]:
    for top in sorted(TOP | {".ci"}):
        path = ROOT / top
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (p for p in found if p.is_file() and "__pycache__" not in p.parts)


def modules() -> list[Path]:
    return sorted((ROOT / "simulator").rglob("*.py"))


def test_the_top_level() -> None:
    found = {path.name for path in ROOT.iterdir()}
    rest = {name for name in found - TOP - MADE if not name.startswith(".")}
    assert {name for name in rest if not name.endswith(".egg-info")} == set()


def test_no_file_speaks_of_a_machine() -> None:
    said = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        if path.suffix in SUFFIXES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert said == []


def test_the_public_names() -> None:
    assert simulator.__all__ == sorted(simulator.__all__)
    for name in simulator.__all__:
        import_module("simulator.run")  # a submodule must not take the place of a public name
        found = getattr(simulator, name)
        assert not isinstance(found, ModuleType), name
        assert found.__doc__, name
    with pytest.raises(AttributeError):
        simulator.nonsense  # noqa: B018


def test_modules_and_functions_read_in_one_sitting() -> None:
    """Past 400 lines a module is two rooms; past 50 a function is two."""
    long = [path.name for path in modules() if path.read_text().count("\n") > 400]
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 50:
                long.append(f"{path.name}:{node.name}")
    assert long == []


def test_nothing_prints_but_the_command_line() -> None:
    prints = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert prints == []
