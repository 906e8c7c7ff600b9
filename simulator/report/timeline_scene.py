"""The numbers behind the timeline picture: one rank's lanes, and which stretches to enlarge."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UserError
from simulator.program.instructions import Stream
from simulator.trace.curve import peak_class
from simulator.trace.memory import CallFacts
from simulator.trace.steps import COMPUTE_STREAM, step_windows
from simulator.trace.timeline import SpanKind
from simulator.trace.trace import Trace

Floats = NDArray[np.float64]
Window = tuple[float, float]

_LAYER = re.compile(r"\blayers\.(\d+)\b")
_STREAM_NAMES = tuple(stream.value for stream in Stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One stream: its spans by start, in ms since the step began."""

    name: str
    kind: NDArray[np.int64]
    label: tuple[str, ...]
    start: Floats
    end: Floats

    def within(self, window: Window) -> Lane:
        """The spans that overlap ``window``, clipped to it."""
        keep = np.flatnonzero((self.end > window[0]) & (self.start < window[1]))
        return Lane(
            name=self.name,
            kind=self.kind[keep],
            label=tuple(self.label[i] for i in keep.tolist()),
            start=np.maximum(self.start[keep], window[0]),
            end=np.minimum(self.end[keep], window[1]),
        )

    def bars(self, kind: SpanKind, gap: float) -> list[tuple[float, float]]:
        """(start, length) of each stretch of ``kind``; gaps up to ``gap`` ms are closed."""
        mine = self.kind == kind
        start, end = self.start[mine], self.end[mine]
        if not len(start):
            return []
        first = np.flatnonzero(np.append(True, start[1:] - end[:-1] > gap))
        last = np.append(first[1:], len(start)) - 1
        return list(zip(start[first].tolist(), (end[last] - start[first]).tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineScene:
    """The last step of one rank; ``zooms`` are (words, window), times in ms since it began."""

    trace: Trace
    rank: int
    step: int
    step_ms: float
    lanes: tuple[Lane, ...]
    zooms: tuple[tuple[str, Window], ...]


def build_timeline(trace: Trace, rank: int | None) -> TimelineScene:
    """The lanes of ``rank`` (None: the peak rank) in the last step. Raises without a timeline."""
    if trace.timeline is None:
        raise UserError("no timeline to draw: the run was memory-only")
    c = peak_class(trace) if rank is None else trace.class_of_rank[rank]
    facts, times = trace.memory[c].calls, trace.timeline.calls[c]
    begin, end = step_windows(facts, times)[-1]
    step = max(facts.step)
    ms = (times.compute_start - begin) / 1e6, (times.compute_end - begin) / 1e6
    step_ms = (end - begin) / 1e6
    return TimelineScene(
        trace=trace,
        rank=trace.class_of_rank.index(c) if rank is None else rank,
        step=step,
        step_ms=step_ms,
        lanes=_lanes(trace, c, begin, end),
        zooms=tuple(
            (words, (max(a, 0.0), min(b, step_ms)))
            for phase in ("forward", "backward")
            for words, a, b in _layer_of(facts, step, phase, *ms)
        ),
    )


def _lanes(trace: Trace, rank_class: int, begin: int, end: int) -> tuple[Lane, ...]:
    """The streams that have spans between ``begin`` and ``end`` (ns), the compute stream first."""
    assert trace.timeline is not None
    spans = trace.timeline.spans
    inside = (spans.rank_class == rank_class) & (spans.end > begin) & (spans.start < end)
    lanes = []
    for stream in np.unique(np.append(spans.stream[inside], COMPUTE_STREAM)).tolist():
        rows = np.flatnonzero(inside & (spans.stream == stream))
        rows = rows[np.argsort(spans.start[rows], kind="stable")]
        lanes.append(
            Lane(
                name="compute" if stream == COMPUTE_STREAM else _STREAM_NAMES[stream],
                kind=spans.kind[rows],
                label=tuple(spans.names[n] for n in spans.name[rows].tolist()),
                start=np.maximum((spans.start[rows] - begin) / 1e6, 0.0),
                end=(np.minimum(spans.end[rows], end) - begin) / 1e6,
            )
        )
    return tuple(lanes)


def _layer_of(
    facts: CallFacts, step: int, phase: str, start: Floats, end: Floats
) -> list[tuple[str, float, float]]:
    """(words, start, end) of the middle layer in one phase, its neighbours' edges included.

    With many micro-batches: of the first. Without layers: nothing.
    """
    calls: dict[int, list[int]] = {}
    for i, (s, p, name) in enumerate(zip(facts.step, facts.phase, facts.name, strict=True)):
        found = _LAYER.search(name)
        if s == step and p == phase and found:
            calls.setdefault(int(found.group(1)), []).append(i)
    if not calls:
        return []
    layer = sorted(calls)[len(calls) // 2]
    first = last = calls[layer][0]
    while last + 1 in calls[layer]:
        last += 1
    margin = 0.2 * (end[last] - start[first])
    return [(f"layers.{layer}, {phase}", start[first] - margin, end[last] + margin)]
