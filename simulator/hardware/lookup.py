"""Where a named data file lies: given as a path, beside the scenario, or packaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from simulator.data import data_dir
from simulator.errors import UnknownNameError, UserError

FOLDERS = {"topology": ("topologies",), "GPU": ("gpus", "topologies/gpus")}
"""The folders that hold the files of each kind, where they don't lie flat beside the scenario."""


def find_file(kind: str, name: str, *beside: Path | None) -> Path:
    """The file of the ``kind`` ("topology" or "GPU") called ``name``.

    ``beside`` are files (the scenario) or folders: ``NAME.yaml`` is looked for there, then in
    ``topologies/`` (or ``gpus/`` and ``topologies/gpus/``) below, then in the packaged data. A
    ``name`` with a slash or the suffix ``.yaml`` is a path, from the current folder or from one of
    those.

    Raises UnknownNameError with the nearest name, or UserError where a path leads nowhere.
    """
    folders = [place if place.is_dir() else place.parent for place in beside if place]
    tried = list(dict.fromkeys(_candidates(kind, name, folders)))
    for path in tried:
        if path.is_file():
            return path
    if _is_path(name):
        raise UserError(f"no {kind} file {name}; looked for {', '.join(map(str, tried))}")
    raise UnknownNameError(kind, name, names(kind))


def names(kind: str) -> tuple[str, ...]:
    """The packaged names of a kind, sorted."""
    return tuple(sorted(path.stem for path in _packaged(kind).glob("*.yaml")))


def _candidates(kind: str, name: str, folders: Sequence[Path]) -> Iterator[Path]:
    if _is_path(name):
        yield Path(name)
        yield from (folder / name for folder in folders)
        return
    for folder in folders:
        yield folder / f"{name}.yaml"
        yield from (folder / below / f"{name}.yaml" for below in FOLDERS[kind])
    yield _packaged(kind) / f"{name}.yaml"


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith(".yaml")


def _packaged(kind: str) -> Path:
    root = data_dir("topologies")
    return root / "gpus" if kind == "GPU" else root
