"""The text of a file and the map that it holds, read strictly."""

from __future__ import annotations

from pathlib import Path

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.documents.yaml_reader import read_yaml
from simulator.errors import UserError

MAX_BYTES = 2**20


def read_map(path: Path, mistakes: Mistakes) -> Map:
    """The map in the data file ``path``; what does not stop reading joins ``mistakes``.

    Raises UserError where the file can't be read or is no text, ScenarioError where it is no map.
    """
    return parse_map(read_text(path, "data file"), str(path), mistakes, "keys to values")


def parse_map(text: str, source: str, mistakes: Mistakes, example: str) -> Map:
    """The map in ``text``. Raises ScenarioError where it holds anything else."""
    tree = read_yaml(text, source, mistakes)
    if isinstance(tree, Map):
        return tree
    mistakes.add(tree.origin, "", f"expected a map of {example}")
    raise mistakes.error()


def read_text(path: Path, kind: str) -> str:
    """The text of a file of the ``kind``. Raises UserError in one sentence."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{path} is too large for a {kind}: {size:,} bytes{_LIMIT}")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from None
    return decode(data, str(path), kind)


_LIMIT = f", where {MAX_BYTES:,} are allowed"


def decode(data: bytes, source: str, kind: str) -> str:
    """The text of ``data``, which was read from ``source``. Raises UserError."""
    if len(data) > MAX_BYTES:
        raise UserError(f"{source} is too large for a {kind}: more than {MAX_BYTES:,} bytes")
    if not data.strip():
        raise UserError(f"{source} is empty")
    if b"\0" in data:
        raise UserError(f"{source} is a binary file; a {kind} is YAML text in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{source}:{line}: is not UTF-8 text ({error.reason})") from None


def reason(error: OSError) -> str:
    """Why a file can't be read, in the system's words."""
    return (error.strerror or type(error).__name__).lower()
