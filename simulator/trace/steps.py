"""Where a step begins and ends on the compute stream, and what fills it. Integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.trace.memory import CallFacts, MemoryReport
from simulator.trace.timeline import CallTimes, IntColumn, SpanKind, Timeline

COMPUTE_STREAM = 0
"""Index of the compute stream among a rank's streams."""

_INIT = "init"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeParts:
    """One step of one class of ranks by what its compute stream does, ns; they add up to the step.

    ``exposed_communication``: waits for a collective, and collectives on the compute stream
    itself; ``host``: waits for the host to launch; ``idle``: what no span explains.
    """

    compute: int
    exposed_communication: int
    bubble: int
    host: int
    optimizer: int
    offload: int
    idle: int

    @property
    def total(self) -> int:
        """The step, ns."""
        busy = self.compute + self.exposed_communication + self.bubble + self.host
        return busy + self.optimizer + self.offload + self.idle


def step_windows(facts: CallFacts, times: CallTimes) -> tuple[tuple[int, int], ...]:
    """(start, end) of each step on the compute stream, ns. Steps tile the stream without gaps.

    A step ends when its last call does; the next one begins there. Step 0 begins where the
    calls of ``init`` end, at 0 without them.
    """
    step, training = np.asarray(facts.step, np.int64), np.asarray(facts.phase) != _INIT
    end = times.compute_end
    begin = int(end[~training].max(initial=0))
    windows = []
    for k in sorted(set(step[training].tolist())):
        close = int(end[training & (step == k)].max())
        windows.append((begin, close))
        begin = close
    return tuple(windows)


def time_parts(timeline: Timeline, rank_class: int, window: tuple[int, int]) -> TimeParts:
    """What fills ``window`` (start, end in ns) on the compute stream of ``rank_class``."""
    spans, (begin, end) = timeline.spans, window
    mine = (spans.rank_class == rank_class) & (spans.stream == COMPUTE_STREAM)
    clipped = np.minimum(spans.end[mine], end) - np.maximum(spans.start[mine], begin)
    kind = spans.kind[mine]

    def of(*kinds: SpanKind) -> int:
        return int(clipped[np.isin(kind, kinds) & (clipped > 0)].sum())

    parts = {
        "compute": of(SpanKind.COMPUTE),
        "exposed_communication": of(SpanKind.COMMUNICATION, SpanKind.IDLE_COMMUNICATION),
        "host": of(SpanKind.IDLE_HOST),
        "optimizer": of(SpanKind.OPTIMIZER),
    }
    idle = end - begin - sum(parts.values())
    return TimeParts(**parts, bubble=0, offload=0, idle=idle)


def moment_ns(
    times: CallTimes,
    call: Sequence[int] | IntColumn,
    fraction: Sequence[float] | NDArray[np.float64],
) -> IntColumn:
    """When points of memory happen on the compute stream, ns.

    Point i lies ``fraction[i]`` of the way from start to end of call ``call[i]``.
    """
    index = np.asarray(call, np.int64)
    begin, end = times.compute_start[index], times.compute_end[index]
    offset: IntColumn = np.rint(np.asarray(fraction) * (end - begin)).astype(np.int64)
    return begin + offset


def phase_windows(
    report: MemoryReport, times: CallTimes | None
) -> tuple[tuple[int, str, float, float], ...]:
    """(step, phase, start, end) of each stretch of one phase, in order of execution.

    Start and end are seconds on the compute stream, or positions in calls without times.
    """
    stretches: list[list[int]] = []
    facts = report.calls
    for i, key in enumerate(zip(facts.step, facts.phase, strict=True)):
        if stretches and key == (facts.step[stretches[-1][0]], facts.phase[stretches[-1][0]]):
            stretches[-1][1] = i
        else:
            stretches.append([i, i])
    windows, begin = [], 0.0
    for first, last in stretches:
        end = float(last + 1) if times is None else int(times.compute_end[last]) / 1e9
        windows.append((facts.step[first], facts.phase[first], begin, end))
        begin = end
    return tuple(windows)
