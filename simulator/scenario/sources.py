"""Finding a scenario and reading its text: a path, a packaged name, or ``-`` for stdin."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from simulator.data import data_dir, data_names
from simulator.errors import UnknownNameError, UserError
from simulator.scenario.scalars import shorten

MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What was read: the text, the name that messages use, and the folder it lies in."""

    text: str
    source: str
    directory: Path | None


def read_source(source: str | Path) -> Text:
    """The text of a scenario. Raises UserError in one sentence where there is none."""
    if str(source) == "-":
        return Text(text=_decode(_read_stdin(), "stdin"), source="stdin", directory=None)
    path = _locate(source)
    return Text(text=_decode(_read_file(path), str(path)), source=str(path), directory=path.parent)


def _locate(source: str | Path) -> Path:
    """The file that ``source`` names: as a path, with .yaml, or among the packaged scenarios."""
    name = str(source)
    if not name.strip():
        raise UserError("the scenario's name is empty")
    if not name.isprintable():
        raise UserError(f"{shorten(name)} is no file name: it has control characters")
    candidates = (Path(name), Path(f"{name}.yaml"), data_dir("scenarios") / f"{name}.yaml")
    for candidate in candidates:
        if _exists(candidate) and not candidate.is_dir():
            return candidate
    if _exists(candidates[0]):
        raise UserError(f"{name} is a directory; name a scenario file")
    if isinstance(source, Path) or "/" in name or name.endswith((".yaml", ".yml")):
        raise UserError(f"{shorten(name)}: no such file")
    raise UnknownNameError("scenario", name, data_names("scenarios"))


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        if isinstance(error, NotADirectoryError):
            return False
        raise UserError(f"cannot read {shorten(str(path))}: {_reason(error)}") from None
    return True


def _read_file(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{path} is too large for a scenario: {size:,} bytes{_LIMIT}")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {_reason(error)}") from None
    return _checked(data, str(path))


def _read_stdin() -> bytes:
    try:
        return _checked(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
    except OSError as error:
        raise UserError(f"cannot read stdin: {_reason(error)}") from None


_LIMIT = f", where {MAX_BYTES:,} are allowed"


def _checked(data: bytes, source: str) -> bytes:
    if len(data) > MAX_BYTES:
        raise UserError(f"{source} is too large for a scenario: more than {MAX_BYTES:,} bytes")
    return data


def _decode(data: bytes, source: str) -> str:
    if not data.strip():
        raise UserError(f"{source} is empty")
    if b"\0" in data:
        raise UserError(f"{source} is a binary file; a scenario is YAML text in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{source}:{line}: is not UTF-8 text ({error.reason})") from None


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
