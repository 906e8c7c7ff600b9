"""The published points of ``tests/data``, and the errors of predictions against them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

DATA = Path(__file__).parents[1] / "data"


class Errors(NamedTuple):
    """Relative errors: absolute median and 90th percentile, signed median, all in percent."""

    n: int
    median: float
    p90: float
    bias: float

    def __str__(self) -> str:
        return (
            f"{self.n} points: median |error| {self.median:.1f} %, p90 {self.p90:.1f} %, "
            f"bias {self.bias:+.1f} %"
        )


def points(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["points"]
    return found


def errors(pairs: list[tuple[float, float]]) -> Errors:
    """Of (predicted, measured) pairs."""
    signed = [100 * (predicted / measured - 1) for predicted, measured in pairs]
    absolute = sorted(abs(one) for one in signed)
    p90 = absolute[min(len(absolute) - 1, int(0.9 * len(absolute)))]
    return Errors(len(pairs), median(absolute), p90, median(signed))
