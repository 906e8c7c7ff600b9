"""The folder of ``--out``: files appear whole or not at all, and only there."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cli.output import say
from simulator.errors import UserError

if TYPE_CHECKING:
    from simulator.trace.result import Result


class OutFolder:
    """A folder that is there and can be written to. Raises UserError where it can't."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise UserError(f"{path} is no folder: --out needs one, or a free name") from None
        except (OSError, ValueError) as error:
            raise UserError(f"cannot make the folder {path}: {_reason(error)}") from None
        _sweep(path)

    def write(self, result: Result) -> None:
        """Write result.json, memory.png and, where there are times, timeline.png."""
        from simulator.report.memory_plot import plot_memory
        from simulator.report.timeline_plot import plot_timeline

        text = json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n"
        self.file("result.json", lambda path: path.write_text(text, encoding="utf-8"))
        self.file("memory.png", lambda path: plot_memory(result.trace, path))
        if result.trace.timeline is not None:
            self.file("timeline.png", lambda path: plot_timeline(result.trace, path))
        elif (self.path / "timeline.png").exists():
            say(
                f"warning: {self.path / 'timeline.png'} is of an earlier run: this one has no times"
            )

    def file(self, name: str, write: Callable[[Path], object]) -> None:
        """Have ``write`` make a file under a passing name, then give it its own."""
        write_whole(self.path / name, write)


_OLD = 60
"""Seconds after which a passing file is nobody's any more."""


def _sweep(folder: Path) -> None:
    """Remove what a run that was killed left under passing names."""
    for path in folder.glob(f".dryfit-{'[0-9a-f]' * 16}.*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD:
                path.unlink()


def write_whole(target: Path, write: Callable[[Path], object]) -> None:
    """Make ``target`` appear complete: written beside it first, then renamed."""
    passing = target.parent / f".dryfit-{secrets.token_hex(8)}{target.suffix}"
    try:
        passing.touch(exist_ok=False)
        write(passing)
        passing.replace(target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {_reason(error)}") from None
    finally:
        with suppress(OSError):
            passing.unlink(missing_ok=True)


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error).lower()
