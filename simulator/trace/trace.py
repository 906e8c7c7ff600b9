"""WAIST 2: a trace is a header, a timeline (None with --memory-only) and memory by class."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.trace.header import Header
from simulator.trace.memory import MemoryReport
from simulator.trace.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All that happened. ``class_of_rank[r]`` indexes ``memory`` (and the timeline's classes)."""

    header: Header
    class_of_rank: tuple[int, ...]
    memory: tuple[MemoryReport, ...]
    timeline: Timeline | None
