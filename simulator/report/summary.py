"""What ``dryfit run`` prints: a verdict and sections of rows, without any idea of a terminal.

``text.py`` renders it plainly; a terminal may colour the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.report.allocator_sections import on_device
from simulator.report.memory_sections import at_peak, beside, biggest, by_phase, not_counted
from simulator.report.table import Section
from simulator.report.time_sections import ranks, speed, where_time_goes
from simulator.report.words import allocating, gib, percent, rank_list, verdict
from simulator.trace.header import Header
from simulator.trace.result import Result
from simulator.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The answer on one page: what was asked, the verdict, the speed, the peak, the reasons."""

    title: str
    setting: str
    fits: bool
    verdict: str
    speed: str
    peak: str
    sections: tuple[Section, ...]
    warnings: tuple[str, ...]


def build_summary(result: Result) -> Summary:
    """The summary of a result."""
    header, memory = result.trace.header, result.memory
    parts = (
        on_device(result),
        at_peak(result),
        by_phase(result),
        biggest(result),
        speed(result),
        where_time_goes(result),
        ranks(result),
        beside(result),
        not_counted(result),
    )
    return Summary(
        title=result.scenario,
        setting=f"{header.world_size} × {header.gpu} ({gib(header.device_bytes)} GiB each), "
        f"{_parameters(header)}, {header.tokens:,} tokens a rank and step",
        fits=memory.fits,
        verdict=verdict(memory.peak_bytes, memory.usable_bytes),
        speed=_speed(result),
        peak=_peak(result),
        sections=tuple(section for section in parts if section is not None),
        warnings=header.warnings,
    )


def _parameters(header: Header) -> str:
    """How many there are, and how many of them are trained."""
    words = f"{header.parameters / 1e9:.2f} B parameters"
    if header.trained_parameters == header.parameters:
        return words
    return f"{words} ({header.trained_parameters:,} trained)"


def _speed(result: Result) -> str:
    """The step in one line."""
    if result.step_time_s is None:
        return "Memory only: nothing was timed."
    least, most = ("at least ", "at most ") if result.at_least else ("", "")
    step = format_time(result.step_time_s, 4)
    rate = f"{result.tokens_per_s_per_gpu or 0.0:,.0f} tokens/s/GPU"
    return f"STEP: {least}{step}, {most}{rate}, MFU {most}{percent(result.mfu or 0.0, 1, 1)}"


def _peak(result: Result) -> str:
    """One sentence: which ranks, when, in which module, for which tensor."""
    memory, of = result.memory, result.trace.class_of_rank
    reports = result.trace.memory
    peak = reports[of[memory.peak_rank]].peak
    alike = [rank for rank, other in enumerate(of) if reports[other].peak == peak]
    who = "every rank" if len(alike) == len(of) else f"rank {rank_list(alike)}"
    asked = allocating(reports[of[memory.peak_rank]])
    what = "The peak" if memory.allocator is None else "The peak of allocated"
    return (
        f"{what} is on {who}, in step {memory.peak_step}, {memory.peak_phase}: "
        f"{memory.peak_at} allocates {asked}."
    )
