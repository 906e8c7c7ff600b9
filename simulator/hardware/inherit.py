"""Topology files that say only what differs: ``extends: dgx-h100`` and the keys that change.

Maps merge, anything else replaces, ``null`` takes away.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from pathlib import Path

from simulator.documents.files import read_map
from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, merge, plain
from simulator.errors import Mistake, UserError
from simulator.hardware.lookup import find_file

KEY = "extends"

Stamped = tuple[Path, int]
"""A file and when it was last changed."""


def chain(kind: str, path: Path) -> tuple[Stamped, ...]:
    """A file and those that it extends, nearest first. Raises UserError, for a cycle too."""
    found: dict[Path, int] = {}
    while True:
        found[path] = path.stat().st_mtime_ns
        tree, _ = _tree(path, found[path])
        if KEY not in tree.items:
            return tuple(found.items())
        path = _base(kind, tree, path, found)


def _base(kind: str, tree: Map, path: Path, found: dict[Path, int]) -> Path:
    """The file that the one at ``path`` extends. Raises ScenarioError."""
    mistakes, name = Mistakes(), plain(tree.items[KEY])
    try:
        if not isinstance(name, str) or not name:
            raise UserError(f"is {name!r}; it must be the name of a {kind}")
        base = find_file(kind, name, path.parent)
        if base in found:
            raise UserError(f"comes back to itself: {' → '.join(p.stem for p in found)}")
    except UserError as error:
        mistakes.at(tree, (KEY,), str(error))
        raise mistakes.error() from None
    return base


def whole(files: tuple[Stamped, ...], mistakes: Mistakes) -> Map:
    """The file that ``chain`` was asked for, with all that it extends."""
    trees = []
    for file in reversed(files):
        tree, found = _tree(*file)
        mistakes.extend(found)
        trees.append(_without_base(tree))
    return reduce(merge, trees)


def _without_base(tree: Map) -> Map:
    items = {key: item for key, item in tree.items.items() if key != KEY}
    return Map(items, tree.origin, tree.keys)


@lru_cache(maxsize=128)
def _tree(path: Path, changed: int) -> tuple[Map, tuple[Mistake, ...]]:
    """A file's tree and mistakes; ``changed`` is part of the key: an edited file is read again."""
    mistakes = Mistakes()
    tree = read_map(path, mistakes)
    return tree, tuple(mistakes.found)
