"""Topology files that say only what differs: ``extends: dgx-h100`` and the keys that change.

Maps merge, anything else replaces, ``null`` takes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from simulator.datafiles import read_yaml
from simulator.errors import UserError
from simulator.hardware.lookup import find_file
from simulator.hardware.section import Section

KEY = "extends"

Stamped = tuple[Path, int]
"""A file and when it was last changed."""


def chain(kind: str, path: Path) -> tuple[Stamped, ...]:
    """A file and those that it extends, nearest first. Raises UserError, for a cycle too."""
    found: dict[Path, int] = {}
    while path not in found:
        found[path] = path.stat().st_mtime_ns
        base = _yaml(path, found[path]).get(KEY)
        if base is None:
            return tuple(found.items())
        if not isinstance(base, str) or not base:
            raise UserError(f"{path}: {KEY}: is {base!r}; it must be the name of a {kind}")
        path = find_file(kind, base, path.parent)
    raise UserError(f"{path}: {KEY}: comes back to itself: {' → '.join(p.stem for p in found)}")


def whole(files: tuple[Stamped, ...]) -> Section:
    """The file that ``chain`` was asked for, with all that it extends."""
    values: Mapping[str, Any] = {}
    for file in reversed(files):
        values = _merged(values, _yaml(*file))
    return Section(files[0][0], {key: value for key, value in values.items() if key != KEY})


@lru_cache(maxsize=128)
def _yaml(path: Path, changed: int) -> Mapping[str, Any]:
    """``changed`` is part of the key: an edited file is read again."""
    return read_yaml(path)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in over.items():
        below = found.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            found[key] = _merged(below, value)
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value is not None or key not in base}
