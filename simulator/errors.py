"""Everything dryfit raises on purpose.

::

    DryfitError
    ├── UserError                 the user's mistake: exit code 2
    │   ├── ScenarioError         one or more located mistakes in a scenario file
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


class DryfitError(Exception):
    """Base of all errors dryfit raises on purpose."""


class UserError(DryfitError):
    """The input is wrong; the message says what, where and what is allowed."""


class UnitError(UserError):
    """A quantity without a unit, with a wrong one, or out of range."""


class UnsupportedError(UserError):
    """A valid request that this version does not carry out; never answered with a wrong number."""


class UnknownNameError(UserError):
    """A name that is not in the catalogue it was looked up in."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"unknown {kind} {name!r}{did_you_mean(name, self.known)}")


class InternalError(DryfitError):
    """An invariant of dryfit itself is broken: a bug."""


class ProgramError(InternalError):
    """A program breaks the rules of WAIST 1 (see ``program/verify.py``)."""


class DeadlockError(InternalError):
    """No event is left, yet streams have work: names who waits for whom."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest known name, else the list of what is allowed.

    >>> did_you_mean("llama2-7", ["llama2-7b", "llama3-8b"])
    "; did you mean 'llama2-7b'?"
    """
    options = list(known)
    close = difflib.get_close_matches(str(name), options, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(options)}" if options else ""
