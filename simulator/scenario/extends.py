"""Reading a scenario and the files it ``extends``: maps merge, lists replace, null deletes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from simulator.documents.files import parse_map
from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Node, Origin, Scalar, find, place, plain, remove
from simulator.documents.node import merge as merge_maps
from simulator.errors import ScenarioError, UserError
from simulator.scenario.changes import from_python
from simulator.scenario.fields import check_line
from simulator.scenario.short_forms import spell_out, spell_out_recipe
from simulator.scenario.sources import Text, read_source

MAX_FILES = 10
"""How many files may stand behind one scenario, itself included."""

_MAPPING = "mapping"
_BESIDE = (("cluster", "topology"), ("cluster", "gpu"))
"""Values that may name a file beside the one that they stand in."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was read; not ``whole`` where what it extends could not be."""

    tree: Map
    source: str
    directory: Path | None
    whole: bool = True


def read_extended(source: str | Path | Mapping[str, Any], mistakes: Mistakes) -> ReadFile:
    """The file with its bases merged in."""
    return merged(read_file(source, mistakes), mistakes)


def merged(file: ReadFile, mistakes: Mistakes) -> ReadFile:
    """The tree of ``file`` over those of all that it extends, as far as they can be read."""
    tree, below, whole = file.tree, file, True
    chain = [_place(file)]
    while whole and "extends" in below.tree.items:
        base = _base(below, mistakes)
        if base is None:
            whole = False
            continue
        again = _place(base) in chain
        chain.append(_place(base))
        if again or len(chain) > MAX_FILES:
            names = " -> ".join(Path(each).name for each in chain)
            why = "goes in a circle" if again else f"is longer than {MAX_FILES} files"
            mistakes.at(below.tree, ("extends",), f"{why}: {names}")
            mistakes.raise_any()
        tree = merge(_beside(base, file.directory), cast(Map, remove(tree, ("extends",))))
        below = base
    tree = cast(Map, remove(tree, ("extends",)))
    return ReadFile(tree, file.source, file.directory, whole)


def merge(base: Map, over: Map) -> Map:
    """``base`` with what ``over`` says, short forms spelled out first."""
    base = spell_out(base)
    if isinstance(find(over, ("training", "precision")), Map):
        base = spell_out_recipe(base)
    return merge_maps(base, over)


def _base(file: ReadFile, mistakes: Mistakes) -> ReadFile | None:
    """The file that ``file`` extends: relative to it, or the name of a packaged scenario."""
    node = file.tree.items["extends"]
    try:
        name = check_line(plain(node))
        beside = (file.directory or Path()) / name
        near = [path for path in (beside, Path(f"{beside}.yaml")) if path.is_file()]
        alone = "/" in name or name.endswith((".yaml", ".yml"))
        if name == "-" or (not near and alone):
            raise UserError(f"{beside}: no such file")
        return read_file(near[0] if near else name, mistakes)
    except ScenarioError:
        raise
    except (UserError, ValueError, OSError) as error:
        mistakes.at(file.tree, ("extends",), str(error))
        return None


def read_file(source: str | Path | Mapping[str, Any], mistakes: Mistakes) -> ReadFile:
    """The tree of one file, name or mapping. Raises UserError."""
    if isinstance(source, Mapping):
        tree: Node = from_python(source, Origin(_MAPPING))
        return ReadFile(cast(Map, tree), _MAPPING, None)
    if not isinstance(source, str | Path):
        raise UserError(f"a scenario is a path, a name or a mapping, not {type(source).__name__}")
    return _parse(read_source(source), mistakes)


def _parse(text: Text, mistakes: Mistakes) -> ReadFile:
    example = "keys, as `model: llama-2-7b`"
    tree = parse_map(text.text, text.source, mistakes, example)
    return ReadFile(tree, text.source, text.directory)


def _place(file: ReadFile) -> str:
    """What a file is known by, however it was named."""
    return file.source if file.directory is None else str(Path(file.source).resolve())


def _beside(base: ReadFile, directory: Path | None) -> Map:
    """The base's tree, in which files beside it are named from everywhere."""
    tree = base.tree
    if base.directory is None or base.directory == directory:
        return tree
    for path in _BESIDE:
        node = find(tree, path)
        if isinstance(node, Scalar) and isinstance(node.value, str):
            near = [base.directory / f"{node.value}{suffix}" for suffix in ("", ".yaml")]
            for file in near:
                if file.is_file():
                    tree = place(tree, path, Scalar(str(file), node.text, node.origin))
                    break
    return tree
