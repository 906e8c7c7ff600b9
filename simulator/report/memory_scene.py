"""The numbers behind the memory picture: one rank's curve in plot units, few enough to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UserError
from simulator.report.palette import stack_order
from simulator.trace.curve import peak_class
from simulator.trace.memory import MemoryReport
from simulator.trace.steps import moment_ns, phase_windows
from simulator.trace.timeline import CallTimes
from simulator.trace.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One rank: x in the unit of the axis, heights in GiB.

    ``names`` from the bottom of the stack to its top; ``held[i, c]`` is what category c holds
    from ``x[i]`` to ``x[i + 1]``, the last row to ``end``, and ``reserved`` what the allocator has
    mapped (None without one); ``windows``: (step, phase, start, end).
    """

    trace: Trace
    report: MemoryReport
    rank: int
    names: tuple[str, ...]
    x: Floats
    held: Floats
    reserved: Floats | None
    peak: tuple[float, float]
    windows: tuple[tuple[int, str, float, float], ...]
    begin: float
    end: float
    unit: str

    def stack(self, begin: float, end: float, columns: int) -> tuple[Floats, Floats]:
        """Edges and cumulative heights between two places, for ``columns`` pixels."""
        first = max(int(np.searchsorted(self.x, begin, side="right")) - 1, 0)
        last = int(np.searchsorted(self.x, end, side="right"))
        x, held = self.x[first:last], self.held[first:last]
        keep = decimated(x, held.sum(axis=1), columns)
        heights = np.cumsum(held[keep], axis=1)
        return np.append(x[keep], end), np.vstack([heights, heights[-1:]])

    def around_peak(self) -> tuple[float, float]:
        """The neighbourhood of the peak: a fiftieth of the time, or fewer allocations."""
        timed = self.trace.timeline is not None
        margin = (self.end - self.begin) / (50 if timed else 200)
        return max(self.peak[0] - margin, self.begin), min(self.peak[0] + margin, self.end)


def build_scene(trace: Trace, rank: int | None) -> Scene:
    """The scene of ``rank``, or of the peak rank."""
    c = peak_class(trace) if rank is None else trace.class_of_rank[rank]
    report = trace.memory[c]
    times = trace.timeline.calls[c] if trace.timeline is not None else None
    curve, peak = report.curve, report.peak
    if not len(curve.call):
        raise UserError("no memory curve to draw: the run kept peaks alone")
    x, at, windows = _by_order(report) if times is None else _by_time(report, times)
    begin = windows[0][2] if windows else float(x[0])
    end = max(windows[-1][3] if windows else 0.0, float(x[-1]))
    scale, unit = (1.0, "allocations and frees, in order") if times is None else _unit(end)
    order = stack_order(curve.categories)
    return Scene(
        trace=trace,
        report=report,
        rank=trace.class_of_rank.index(c) if rank is None else rank,
        names=tuple(curve.categories[i] for i in order),
        x=x * scale,
        held=curve.bytes[:, order] / GIB,
        reserved=None if curve.reserved is None else curve.reserved / GIB,
        peak=(at * scale, peak.allocated / GIB),
        windows=tuple((s, p, a * scale, b * scale) for s, p, a, b in windows),
        begin=begin * scale,
        end=end * scale,
        unit=unit,
    )


Placed = tuple[Floats, float, tuple[tuple[int, str, float, float], ...]]
"""Places of the curve's rows, of the peak, and the phases with their starts and ends."""


def _by_time(report: MemoryReport, times: CallTimes) -> Placed:
    """Seconds on the compute stream."""
    curve, peak = report.curve, report.peak
    x = moment_ns(times, curve.call, curve.fraction) / 1e9
    at = moment_ns(times, [peak.call], [peak.fraction])[0] / 1e9
    return np.asarray(x, np.float64), float(at), phase_windows(report, times)


def _by_order(report: MemoryReport) -> Placed:
    """The number of the row: a step in memory is a step to the right."""
    curve, peak = report.curve, report.peak
    of_call = np.flatnonzero(curve.call == peak.call)
    highest = of_call[np.argmax(curve.bytes[of_call].sum(axis=1))] if len(of_call) else 0
    windows = tuple(
        (step, phase, float(first), float(last))
        for step, phase, begin, end in phase_windows(report, None)
        for first, last in [np.searchsorted(curve.call, (begin, end))]
    )
    return np.arange(len(curve.call), dtype=np.float64), float(highest), windows


def _unit(seconds: float) -> tuple[float, str]:
    where = "on the compute stream since the start of step 0"
    return (1e3, f"ms {where}") if seconds < 1.0 else (1.0, f"s {where}")


def decimated(x: Floats, y: Floats, columns: int) -> Ints:
    """Indices that look the same at ``columns`` pixels: first, last, lowest, highest of each."""
    if len(x) <= 4 * columns:
        return np.arange(len(x), dtype=np.int64)
    width = (float(x[-1]) - float(x[0])) or 1.0
    column = np.minimum((x - x[0]) / width * columns, columns - 1).astype(np.int64)
    first = np.flatnonzero(np.diff(column, prepend=-1))
    last = np.append(first[1:], len(x)) - 1
    by_height = np.lexsort((y, column))
    return np.unique(np.concatenate([first, last, by_height[first], by_height[last]]))
