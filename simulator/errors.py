"""Everything dryfit raises on purpose.

::

    DryfitError
    ├── UserError                 the user's mistake: exit code 2
    │   ├── ScenarioError         one or more located mistakes in the user's files
    │   ├── UnitError             a quantity that cannot be read
    │   ├── UnknownNameError      a name that is not in a catalogue (carries the nearest match)
    │   └── UnsupportedError      understood, but this version cannot do it: says so by name
    └── InternalError             ours: exit code 3
        ├── ProgramError          a program breaks its own rules (use after free, orphan wait, ...)
        └── DeadlockError         the simulation stopped with unfinished streams: who waits for whom
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class DryfitError(Exception):
    """Base of all errors dryfit raises on purpose."""


class UserError(DryfitError):
    """The input is wrong; the message says what, where and what is allowed."""


class UnitError(UserError):
    """A quantity without a unit, with a wrong one, or out of range."""


class UnsupportedError(UserError):
    """A valid request that this version does not carry out; never answered with a wrong number.

    ``key``: the dotted key of a scenario that asks for it, where one does.
    """

    def __init__(self, message: str, *, key: str = "") -> None:
        """What is asked for, and the nearest that can be had."""
        super().__init__(message)
        self.key = key


class UnknownNameError(UserError):
    """A name that is not in the catalogue it was looked up in."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Of a ``kind`` of thing, ``name`` is not among the ``known``."""
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"unknown {kind} {name!r}{did_you_mean(name, self.known)}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, tuple[str, ...]]]:
        """Pickle by the arguments, so that the error crosses process borders."""
        return type(self), (self.kind, self.name, self.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake in a file: where it stands (line 0: no file), its dotted key, what is wrong.

    >>> print(Mistake(source="a.yaml", line=3, column=8, key="training.seq_len", text="is -1"))
    a.yaml:3:8: training.seq_len: is -1
    """

    source: str
    line: int = 0
    column: int = 0
    key: str = ""
    text: str

    def __str__(self) -> str:
        """The place, the key where there is one, and the text."""
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        return ": ".join(part for part in (place, self.key, self.text) if part)


class ScenarioError(UserError):
    """The mistakes of one scenario, or of a data file, in the order of their lines."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        """Sort the mistakes by file, as met, and by where they stand."""
        found = list(mistakes)
        files = list(dict.fromkeys(each.source for each in found))
        found.sort(key=lambda each: (files.index(each.source), each.line, each.column))
        self.mistakes = tuple(found)
        super().__init__(self.mistakes)

    def __str__(self) -> str:
        """One line for each mistake."""
        return "\n".join(str(mistake) for mistake in self.mistakes)


class InternalError(DryfitError):
    """An invariant of dryfit itself is broken: a bug."""


class ProgramError(InternalError):
    """A program breaks the rules of WAIST 1 (see ``program/verify.py``)."""


class DeadlockError(InternalError):
    """No event is left, yet streams have work: names who waits for whom."""


def did_you_mean(
    name: str, known: Iterable[str], *, cutoff: float = 0.6, listed: Iterable[str] | None = None
) -> str:
    """``; did you mean 'x'?`` for the closest known name, else the list of what is allowed.

    The same in other letters' case is closest, then what begins with it, then the most alike, at
    least ``cutoff``. ``listed``: what the list has, if not all that is known.

    >>> did_you_mean("llama2-7", ["llama2-7b", "llama3-8b"])
    "; did you mean 'llama2-7b'?"
    >>> did_you_mean("AdamW", ["adam", "adamw-8bit", "adamw"])
    "; did you mean 'adamw'?"
    >>> did_you_mean("H100", ["a100-sxm", "h100-pcie", "h100-sxm"])
    "; did you mean 'h100-pcie' or 'h100-sxm'?"
    """
    options = list(known)
    close = _closest(str(name), options, cutoff)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    shown = options if listed is None else list(listed)
    return f"; known: {', '.join(shown)}" if shown else ""


_ALIKE = 3
"""How many names may begin with the one that was given."""


def _closest(name: str, options: list[str], cutoff: float) -> list[str]:
    low = name.casefold()
    same = [option for option in options if option.casefold() == low]
    if same:
        return same[:1]
    longer = [option for option in options if option.casefold().startswith(f"{low}-")]
    if 0 < len(longer) <= _ALIKE:
        return longer
    alike = difflib.get_close_matches(low, [option.casefold() for option in options], 1, cutoff)
    return [option for option in options if option.casefold() in alike][:1]
