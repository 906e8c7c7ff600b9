"""Errors of many cases, summed up by quantity: median, nine of ten, worst, and by source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol


class Judged(Protocol):
    """A case with its error; what a validation collects."""

    @property
    def id(self) -> str:
        """The case's name."""

    @property
    def source(self) -> str:
        """Where the measurement comes from."""

    @property
    def quantity(self) -> str:
        """What was measured."""

    @property
    def error_pct(self) -> float | None:
        """Signed error in percent of the measurement; None for a verdict."""

    @property
    def verdict(self) -> str:
        """What became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Absolute errors of one quantity, in percent.

    ``median_of_sources_pct`` is the median over sources of each source's median, so that one big
    table does not decide it; ``median_abs_pct`` and ``p90_abs_pct`` pool all cases. ``missed``
    counts those that dryfit can't express.
    """

    n: int
    median_abs_pct: float | None
    p90_abs_pct: float | None
    median_of_sources_pct: float | None
    worst: str
    worst_error_pct: float | None
    wrong: int
    missed: int
    by_source: dict[str, dict[str, float | int | None]]

    def to_json(self) -> dict[str, object]:
        """The entry of ``summary``."""
        return {name: getattr(self, name) for name in self.__slots__}


def p90(values: Sequence[float]) -> float:
    """The smallest of ``values`` that nine of ten don't exceed (nearest rank).

    >>> p90([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), p90([3, 1])
    (9, 3)
    """
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]


def summaries(cases: Iterable[Judged]) -> dict[str, Summary]:
    """A summary for each quantity, in the order of their first case."""
    groups: dict[str, list[Judged]] = {}
    for case in cases:
        groups.setdefault(case.quantity, []).append(case)
    return {quantity: _summary(group) for quantity, group in groups.items()}


def _summary(cases: Sequence[Judged]) -> Summary:
    errors = _errors(cases)
    sources = {
        source: [case for case in cases if case.source == source]
        for source in dict.fromkeys(case.source for case in cases)
    }
    by_source: dict[str, dict[str, float | int | None]] = {
        source: {"n": len(group), "median_abs_pct": _median(_errors(group))}
        for source, group in sources.items()
    }
    wrong = [case for case in cases if case.verdict == "wrong"]
    worst = max(cases, key=lambda case: (case.verdict == "wrong", abs(case.error_pct or 0.0)))
    return Summary(
        n=len(cases),
        median_abs_pct=_median(errors),
        p90_abs_pct=p90(errors) if errors else None,
        median_of_sources_pct=_median([m for s in sources.values() if (m := _median(_errors(s)))]),
        worst=worst.id,
        worst_error_pct=worst.error_pct,
        wrong=len(wrong),
        missed=sum(case.verdict == "miss" for case in cases),
        by_source=by_source,
    )


def _errors(cases: Sequence[Judged]) -> list[float]:
    return [abs(case.error_pct) for case in cases if case.error_pct is not None]


def _median(errors: Sequence[float]) -> float | None:
    return median(errors) if errors else None
