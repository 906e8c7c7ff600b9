"""The memory curve of the peak rank at framework hook boundaries: ``dryfit.curve/1``."""

from __future__ import annotations

from simulator.trace.steps import moment_ns
from simulator.trace.trace import Trace


def peak_class(trace: Trace) -> int:
    """The class whose peak allocated is the highest (the one of the lowest rank, on ties)."""
    order = dict.fromkeys(trace.class_of_rank)
    return max(order, key=lambda c: trace.memory[c].peak.allocated)


def curve_points(
    trace: Trace, rank_class: int | None = None
) -> list[tuple[int, str, int, int | None, float | None]]:
    """(step, mark, allocated bytes, reserved bytes, seconds) at each mark of a class.

    Default: the peak rank's class. Reserved is None without an allocator, seconds (on the compute
    stream, since the start of step 0) without a timeline.
    """
    rank_class = peak_class(trace) if rank_class is None else rank_class
    marks = trace.memory[rank_class].marks
    seconds: list[float | None] = [None] * len(marks)
    if trace.timeline is not None and marks:
        times = trace.timeline.calls[rank_class]
        moments = moment_ns(times, [m.call for m in marks], [m.fraction for m in marks])
        seconds = [ns / 1e9 for ns in moments.tolist()]
    return [
        (m.step, m.mark, m.allocated, m.reserved, at) for m, at in zip(marks, seconds, strict=True)
    ]


def curve_json(trace: Trace) -> dict[str, object]:
    """The object of ``dryfit show --curve --json``: one point a mark of the peak rank."""
    return {"schema": "dryfit.curve/1", "points": [list(p) for p in curve_points(trace)]}
