"""The answer: what a person, a script or a study reads of one run (``dryfit.result/1``).

From a trace to the answer there is no physics, only sums, maxima and quotients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from simulator.errors import UserError
from simulator.trace.curve import curve_json, peak_class
from simulator.trace.memory import MemoryReport, PhasePeak
from simulator.trace.parts import (
    EngineResult,
    MemoryResult,
    PhaseResult,
    RankResult,
    TimeResult,
)
from simulator.trace.steps import step_windows, time_parts
from simulator.trace.trace import Trace

__all__ = ["Result", "Views", "curve_json", "summarise"]

SHOWN_STEPS = (0, 1)
"""The steps whose phases a result lists: optimizer states are born in the first."""

_PHASES = ("init", "forward", "backward", "optimizer")


class Views(Protocol):
    """What draws a result: the row above gives it, so that a trace knows nothing of pictures."""

    def plot_memory(self, trace: Trace, *, rank: int | None = None) -> Any:
        """A figure of the memory of ``rank`` over time (None: the peak rank)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What ``simulate`` returns. Times are seconds, None without a timeline.

    ``step_time_s`` is the last step of the slowest ranks, ``first_step_time_s`` step 0 as
    simulated. FLOP rates are per GPU; ``mfu`` and ``hfu`` are of the dense peak (0..1). Where
    part of a step is not timed, its time is a lower bound and the rates are upper ones.
    """

    scenario: str
    seed: int
    world_size: int
    step_time_s: float | None
    first_step_time_s: float | None
    tokens_per_s: float | None
    tokens_per_s_per_gpu: float | None
    tflops_per_gpu: float | None
    mfu: float | None
    hfu: float | None
    memory: MemoryResult
    time: TimeResult
    ranks: tuple[RankResult, ...]
    engine: EngineResult
    trace: Trace = field(repr=False, compare=False)
    views: Views | None = field(default=None, repr=False, compare=False)

    @property
    def at_least(self) -> bool:
        """Whether there is a step time that is only a lower bound."""
        return self.step_time_s is not None and self.trace.header.at_least

    def to_json(self) -> dict[str, object]:
        """The object of ``--json``: fixed key order, plain numbers, no wall clock."""
        return {
            "schema": "dryfit.result/1",
            "scenario": self.scenario,
            "seed": self.seed,
            "world_size": self.world_size,
            "step_time_s": self.step_time_s,
            "step_time_is_lower_bound": self.at_least,
            "first_step_time_s": self.first_step_time_s,
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "tflops_per_gpu": self.tflops_per_gpu,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "memory": self.memory.to_json(),
            "time": self.time.to_json(),
            "ranks": [rank.to_json() for rank in self.ranks],
            "engine": self.engine.to_json(),
            "warnings": list(self.trace.header.warnings),
        }

    def frame(self, kind: str) -> Any:
        """A pandas DataFrame: ``ranks``, ``phases``, ``spans`` (times in ns) or ``curve``."""
        from simulator.trace.frames import frame

        return frame(self, kind)

    def plot_memory(self, rank: int | None = None) -> Any:
        """A matplotlib figure of memory over time by category (None: the peak rank)."""
        if self.views is None:
            raise UserError("this result carries no views: plot it with simulator.report")
        return self.views.plot_memory(self.trace, rank=rank)


def summarise(trace: Trace) -> Result:
    """Compute a result from a trace alone."""
    header = trace.header
    first, last = _step_times_ns(trace)
    slowest = _slowest_class(trace, last)
    step_s = last[slowest] / 1e9 if slowest is not None else None
    per_gpu = header.tokens / step_s if step_s else None
    flops_per_s = header.model_flops / step_s if step_s else None
    hardware_flops_per_s = header.hardware_flops / step_s if step_s else None
    return Result(
        scenario=header.scenario,
        seed=header.seed,
        world_size=header.world_size,
        step_time_s=step_s,
        first_step_time_s=max(first.values()) / 1e9 if first else None,
        tokens_per_s=per_gpu * header.world_size if per_gpu is not None else None,
        tokens_per_s_per_gpu=per_gpu,
        tflops_per_gpu=flops_per_s / 1e12 if flops_per_s is not None else None,
        mfu=_share(flops_per_s, header.peak_flops),
        hfu=_share(hardware_flops_per_s, header.peak_flops),
        memory=_memory(trace),
        time=_time(trace, slowest),
        ranks=_ranks(trace, last),
        engine=_engine(trace),
        trace=trace,
    )


def _share(rate: float | None, peak: float) -> float | None:
    return rate / peak if rate is not None and peak else None


def _step_times_ns(trace: Trace) -> tuple[dict[int, int], dict[int, int]]:
    """Durations of the first and of the last step, ns, by class; empty without a timeline."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    if trace.timeline is None:
        return first, last
    for c in dict.fromkeys(trace.class_of_rank):
        windows = step_windows(trace.memory[c].calls, trace.timeline.calls[c])
        if windows:
            first[c] = windows[0][1] - windows[0][0]
            last[c] = windows[-1][1] - windows[-1][0]
    return first, last


def _slowest_class(trace: Trace, last: dict[int, int]) -> int | None:
    """The class with the longest last step; the peak rank's on ties; None without a timeline."""
    peak = peak_class(trace)
    return max(last, key=lambda c: (last[c], c == peak, -c)) if last else None


def _memory(trace: Trace) -> MemoryResult:
    header, c = trace.header, peak_class(trace)
    report = trace.memory[c]
    peak, allocator = report.peak, report.allocator
    device = None
    if allocator is not None and header.outside is not None:
        device = allocator.peak_reserved + header.outside.usual
    return MemoryResult(
        device_bytes=header.device_bytes,
        usable_bytes=header.device_bytes - header.reserved_by_others,
        peak_allocated_bytes=peak.allocated,
        peak_active_bytes=peak.allocated if report.exact else None,
        peak_rank=trace.class_of_rank.index(c),
        peak_step=peak.step,
        peak_phase=peak.phase,
        peak_at=peak.at,
        peak_tensor=peak.tensor,
        breakdown_at_peak=dict(peak.breakdown),
        phases=_phases(report),
        counter="allocated" if device is None else "device",
        peak_reserved_bytes=None if allocator is None else allocator.peak_reserved,
        peak_device_bytes=device,
        allocator=allocator,
        outside=header.outside,
    )


def _phases(report: MemoryReport) -> tuple[PhaseResult, ...]:
    """(0, init), then forward, backward and optimizer of steps 0 and 1: the highest of each."""
    highest = _quiet_phases(report)
    for found in report.phases:
        known = highest.get((found.step, found.phase))
        if known is None or found.allocated > known.allocated:
            highest[found.step, found.phase] = found
    return tuple(
        PhaseResult(
            step=p.step,
            phase=p.phase,
            peak_allocated_bytes=p.allocated,
            peak_reserved_bytes=p.reserved,
            at=p.at,
            tensor=p.tensor,
            breakdown=dict(p.breakdown),
        )
        for p in sorted(highest.values(), key=lambda p: (p.step, _PHASES.index(p.phase)))
        if p.step in SHOWN_STEPS
    )


def _quiet_phases(report: MemoryReport) -> dict[tuple[int, str], PhasePeak]:
    """What is held on entry to each phase that allocates nothing, as an optimizer in place."""
    seen = {(p.step, p.phase) for p in report.phases}
    quiet: dict[tuple[int, str], PhasePeak] = {}
    curve, calls = report.curve, report.calls
    for call, key in enumerate(zip(calls.step, calls.phase, strict=True)):
        if key in seen:
            continue
        seen.add(key)
        row = int(np.searchsorted(curve.call, call)) - 1
        if row < 0:
            continue
        held = zip(curve.categories, curve.bytes[row].tolist(), strict=True)
        breakdown = {category: size for category, size in held if size}
        quiet[key] = PhasePeak(
            step=key[0],
            phase=key[1],
            allocated=sum(breakdown.values()),
            at="optimizer" if key[1] == "optimizer" else calls.name[call],
            tensor="",
            breakdown=breakdown,
            call=call,
            fraction=0.0,
            reserved=None if curve.reserved is None else int(curve.reserved[row]),
        )
    return quiet


def _time(trace: Trace, rank_class: int | None) -> TimeResult:
    if trace.timeline is None or rank_class is None:
        return TimeResult()
    calls = trace.timeline.calls[rank_class]
    window = step_windows(trace.memory[rank_class].calls, calls)[-1]
    parts = time_parts(trace.timeline, rank_class, window)
    return TimeResult(**{f"{name}_s": getattr(parts, name) / 1e9 for name in parts.__slots__})


def _ranks(trace: Trace, last: dict[int, int]) -> tuple[RankResult, ...]:
    return tuple(
        RankResult(
            rank=rank,
            rank_class=c,
            device=device,
            peak_allocated_bytes=trace.memory[c].peak.allocated,
            peak_reserved_bytes=_reserved(trace.memory[c]),
            step_time_s=last[c] / 1e9 if c in last else None,
        )
        for rank, (c, device) in enumerate(
            zip(trace.class_of_rank, trace.header.device_names, strict=True)
        )
    )


def _reserved(report: MemoryReport) -> int | None:
    return None if report.allocator is None else report.allocator.peak_reserved


def _engine(trace: Trace) -> EngineResult:
    if trace.timeline is None:
        return EngineResult(classes=len(set(trace.class_of_rank)))
    counts = trace.timeline.counts
    return EngineResult(
        classes=counts.classes,
        events=counts.events,
        launches=counts.launches,
        collectives=counts.collectives,
    )
