"""Reference sets: one file of many measured cases, each a change of one ``base:``.

A case that ``lacks`` something says what of it the keys of a scenario cannot say; its ``set`` is
then the nearest, and it is a miss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Node, Scalar, Sequence, place, plain
from simulator.errors import ScenarioError, did_you_mean
from simulator.scenario.bounds import Measured
from simulator.scenario.catalogue import BuiltIn, Catalogue
from simulator.scenario.changes import apply_changes
from simulator.scenario.extends import ReadFile, merged, read_file
from simulator.scenario.fields import check_line, kind_of
from simulator.scenario.loading import resolve_document
from simulator.scenario.resolve import resolve_measured
from simulator.scenario.scenario import Scenario
from simulator.scenario.schema import MeasuredSection

_KEYS = ("name", "base", "cases")
_CASE = ("id", "set", "measured", "lacks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inexpressible:
    """A case that this version cannot simulate, and why: a miss."""

    measured: Measured
    why: str


Cases = dict[str, Scenario | Inexpressible]


def load_cases(source: str | Path, *, catalogue: Catalogue | None = None) -> Cases | None:
    """The cases of a reference set by id; None where ``source`` is a scenario.

    Raises UserError where the file is wrong; a case that asks for more than this version can is
    no mistake.
    """
    mistakes = Mistakes()
    file = read_file(source, mistakes)
    if "cases" not in file.tree.items:
        return None
    base = _base(file, mistakes)
    found = dict(_cases(file, base, catalogue or BuiltIn(), mistakes))
    mistakes.raise_any()
    return found


def _base(file: ReadFile, mistakes: Mistakes) -> Map:
    """The tree that the cases change."""
    for key in file.tree.items:
        if key not in _KEYS:
            text = f"unknown key{did_you_mean(key, _KEYS)}"
            mistakes.at(file.tree, (key,), text, of_key=True)
    node = file.tree.items.get("base")
    if isinstance(node, Scalar) and node.value is not None:
        node = Map({"extends": node}, node.origin, {"extends": node.origin})
    if not isinstance(node, Map):
        mistakes.at(file.tree, ("base",), "expected the name of a scenario, or a scenario")
        mistakes.raise_any()
    assert isinstance(node, Map)
    found = merged(ReadFile(node, file.source, file.directory), mistakes)
    if not found.whole:
        mistakes.raise_any()
    return found.tree


def _cases(
    file: ReadFile, base: Map, catalogue: Catalogue, mistakes: Mistakes
) -> Iterator[tuple[str, Scenario | Inexpressible]]:
    node = file.tree.items["cases"]
    if not isinstance(node, Sequence) or not node.items:
        mistakes.at(file.tree, ("cases",), f"expected a list of {{{', '.join(_CASE)}}}")
        return
    seen: set[str] = set()
    for number, entry in enumerate(node.items):
        read = _entry(entry, f"cases[{number}]", seen, mistakes)
        if read is None:
            continue
        name, changes, measured, lacks = read
        tree = place(base, ("measured",), measured)
        try:
            document = apply_changes(tree, changes.items.items())
            found = resolve_document(document, file.source, file.directory, Mistakes(), catalogue)
        except ScenarioError as error:
            case = _miss(measured, error, lacks, mistakes)
            if case is not None:
                yield name, case
        else:
            if lacks and found.measured is not None:
                yield name, Inexpressible(measured=found.measured, why=lacks)
            else:
                yield name, found


def _entry(
    node: Node, key: str, seen: set[str], mistakes: Mistakes
) -> tuple[str, Map, Map, str] | None:
    """A case's id, its changes, what was measured, and what of it no key can say."""
    if not isinstance(node, Map):
        mistakes.add(node.origin, key, f"expected a map of {', '.join(_CASE)}")
        return None
    for other in node.items:
        if other not in _CASE:
            text = f"unknown key{did_you_mean(other, _CASE)}"
            mistakes.add(node.keys.get(other, node.origin), f"{key}.{other}", text)
    empty = Map({}, node.origin)
    parts = [node.items.get("set", empty), node.items.get("measured", empty)]
    for part, name in zip(parts, ("set", "measured"), strict=True):
        if not isinstance(part, Map):
            found = kind_of(plain(part))
            mistakes.add(part.origin, f"{key}.{name}", f"expected a map, found {found}")
            return None
    said: list[str] = []
    for word in ("id", "lacks") if "lacks" in node.items else ("id",):
        try:
            said.append(check_line(plain(node.items[word]) if word in node.items else None))
        except ValueError as error:
            mistakes.add(node.origin, f"{key}.{word}", str(error))
            return None
    name = said[0]
    if name in seen:
        mistakes.add(node.origin, f"{key}.id", f"{name!r} is the id of an earlier case too")
    seen.add(name)
    changes, measured = parts
    assert isinstance(changes, Map)
    assert isinstance(measured, Map)
    return name, changes, measured, said[1] if "lacks" in node.items else ""


def _miss(
    measured: Map, error: ScenarioError, lacks: str, mistakes: Mistakes
) -> Inexpressible | None:
    """A case that cannot be expressed; a key that nobody knows is a mistake of the file.

    What the file says that it ``lacks`` is the reason before what was found.
    """
    typos = [
        each
        for each in error.mistakes
        if each.text.startswith("unknown key") or each.key.partition(".")[0] == "measured"
    ]
    for each in typos:
        mistakes.found.append(each)
    if typos:
        return None
    try:
        section = MeasuredSection.model_validate(plain(measured))
    except ValidationError:
        return None
    found = resolve_measured(section)
    assert found is not None
    why = lacks or "; ".join(f"{each.key}: {each.text}" for each in error.mistakes)
    return Inexpressible(measured=found, why=why)
