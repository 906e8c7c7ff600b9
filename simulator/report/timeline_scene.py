"""The numbers behind the timeline picture: one rank's lanes, and which stretches to enlarge."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UserError
from simulator.program.instructions import Stream
from simulator.trace.curve import peak_class
from simulator.trace.memory import CallFacts, MemoryReport
from simulator.trace.steps import COMPUTE_STREAM, step_windows
from simulator.trace.timeline import SpanKind, Spans, Timeline
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
    report, times = trace.memory[c], trace.timeline.calls[c]
    begin, end = step_windows(report.calls, times)[-1]
    start_ms, end_ms = (times.compute_start - begin) / 1e6, (times.compute_end - begin) / 1e6
    modules = modules_of_calls(report)
    return TimelineScene(
        trace=trace,
        rank=trace.class_of_rank.index(c) if rank is None else rank,
        step=max(report.calls.step),
        step_ms=(end - begin) / 1e6,
        lanes=_lanes(trace.timeline, c, (begin, end), modules),
        zooms=tuple(
            zoom
            for phase in ("forward", "backward")
            for zoom in _zoom_of(report.calls, modules, phase, start_ms, end_ms)
        ),
    )


def _lanes(
    timeline: Timeline, rank_class: int, window: tuple[int, int], modules: tuple[str, ...]
) -> tuple[Lane, ...]:
    """The streams that have spans in ``window`` (ns), the compute stream first."""
    spans, (begin, end) = timeline.spans, window
    inside = (spans.rank_class == rank_class) & (spans.end > begin) & (spans.start < end)
    lanes = []
    for stream in np.unique(np.append(spans.stream[inside], COMPUTE_STREAM)).tolist():
        rows = np.flatnonzero(inside & (spans.stream == stream))
        rows = rows[np.argsort(spans.start[rows], kind="stable")]
        lanes.append(
            Lane(
                name="compute" if stream == COMPUTE_STREAM else _STREAM_NAMES[stream],
                kind=spans.kind[rows],
                label=tuple(_label(spans, row, modules) for row in rows.tolist()),
                start=np.maximum((spans.start[rows] - begin) / 1e6, 0.0),
                end=(np.minimum(spans.end[rows], end) - begin) / 1e6,
            )
        )
    return tuple(lanes)


def _label(spans: Spans, row: int, modules: tuple[str, ...]) -> str:
    """The module of kernels on the compute stream; elsewhere the span's own name."""
    kernels = spans.kind[row] in (SpanKind.COMPUTE, SpanKind.OPTIMIZER)
    if kernels and spans.stream[row] != COMPUTE_STREAM:
        return ""
    return modules[int(spans.call[row])] if kernels else spans.names[int(spans.name[row])]


def modules_of_calls(report: MemoryReport) -> tuple[str, ...]:
    """What each call runs, by the first hook that it enters; its own name where it enters none."""
    names = list(report.calls.name)
    for mark in reversed(report.marks):
        hook, _, module = mark.mark.partition(":")
        if hook.startswith("pre_") and module:
            names[mark.call] = module
    return tuple(names)


def _zoom_of(
    facts: CallFacts, modules: tuple[str, ...], phase: str, start: Floats, end: Floats
) -> list[tuple[str, Window]]:
    """(words, window) of the middle layer of the last step in one phase, with a margin.

    With many micro-batches: of the first. Without layers: the middle call. Calls that take no
    time have no picture.
    """
    mine = [
        i
        for i, key in enumerate(zip(facts.step, facts.phase, strict=True))
        if key == (max(facts.step), phase) and end[i] > start[i]
    ]
    if not mine:
        return []
    of_layer: dict[int, list[int]] = {}
    for i in mine:
        if found := _LAYER.search(modules[i]):
            of_layer.setdefault(int(found.group(1)), []).append(i)
    middle = of_layer[sorted(of_layer)[len(of_layer) // 2]] if of_layer else [mine[len(mine) // 2]]
    first = last = middle[0]
    while last + 1 in middle:
        last += 1
    margin = 0.2 * (end[last] - start[first])
    window = (max(start[first] - margin, 0.0), min(end[last] + margin, float(end[-1])))
    return [(f"{modules[first]}, {phase}", window)]
