"""Finding a scenario and reading its text: a path, a packaged name, or ``-`` for stdin."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from simulator.data import data_dir, data_names
from simulator.documents.files import MAX_BYTES, decode, read_text, reason
from simulator.documents.scalars import shorten
from simulator.errors import UnknownNameError, UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What was read: the text, the name that messages use, and the folder it lies in."""

    text: str
    source: str
    directory: Path | None


def read_source(source: str | Path) -> Text:
    """The text of a scenario. Raises UserError in one sentence where there is none."""
    if str(source) == "-":
        return Text(text=decode(_read_stdin(), "stdin", "scenario"), source="stdin", directory=None)
    path = _locate(source)
    return Text(text=read_text(path, "scenario"), source=str(path), directory=path.parent)


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
        raise UserError(f"cannot read {shorten(str(path))}: {reason(error)}") from None
    return True


def _read_stdin() -> bytes:
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read stdin: {reason(error)}") from None
