"""What a scenario expects of the answer, and what was measured of the real run."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from simulator.errors import UnitError

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A comparison with a number: bytes, seconds or a plain figure, as its key says."""

    comparison: str
    value: float
    text: str

    def holds(self, found: float) -> bool:
        """Whether ``found`` (in the unit of ``value``) satisfies the comparison."""
        return _COMPARISONS[self.comparison](found, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """``expect:``; None where nothing is expected. Bytes, seconds, fractions."""

    fits: bool | None = None
    peak_allocated: Bound | None = None
    peak_reserved: Bound | None = None
    step_time: Bound | None = None
    mfu: Bound | None = None
    tokens_per_s_per_gpu: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """``measured:``; what a real run showed. Bytes and seconds; None where not measured.

    ``of``: whose memory the figures are: the largest rank's (``max``), the ``last`` rank's, or
    one rank's by number. ``trust``: A and B count in a validation, C is only shown.
    """

    peak_allocated: int | None = None
    peak_active: int | None = None
    peak_reserved: int | None = None
    peak_device: int | None = None
    host_peak: int | None = None
    of: str | int = "max"
    tokens_per_s_per_gpu: float | None = None
    step_time: float | None = None
    fits: bool | None = None
    trust: str = "B"
    source: str | None = None


def parse_bound(text: str, parse: Callable[[str], float]) -> Bound:
    """Read ``<= 76 GiB``. Raises UnitError.

    >>> parse_bound(">= 0.38", float).holds(0.4)
    True
    """
    found = re.fullmatch(r"\s*(<=|>=|<|>)\s*(.*)", text)
    if found is None:
        raise UnitError(f"{text!r} is no comparison; begin with one of {', '.join(_COMPARISONS)}")
    return Bound(comparison=found[1], value=parse(found[2]), text=text)


def parse_number(text: str) -> float:
    """A plain number without a unit, 0 or more. Raises UnitError."""
    if not re.fullmatch(r"\d{1,20}(\.\d{0,20})?([eE][+-]?\d{1,9})?", text.strip(), re.ASCII):
        raise UnitError(f"{text!r} is no plain number of 0 or more")
    found = float(text)
    if not math.isfinite(found):
        raise UnitError(f"{text!r} is out of range: too large for a number")
    return found
