"""WAIST 2, memory: what the replay of a program says about one class of ranks.

Bytes are sums of requests rounded to 512 (``counter: allocated``), in host issue order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTensor:
    """A tensor alive at a peak."""

    name: str
    module: str
    category: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """The highest allocated at an allocation inside one phase of one step.

    ``at`` is the module that allocates there (``layers.31.mlp``, ``loss``), ``tensor`` what it
    allocates; ``breakdown`` maps category names to bytes and adds up to ``allocated``. ``call``
    and ``fraction`` place it in time: the call, and how far through its instructions (0..1).
    """

    step: int
    phase: str
    allocated: int
    at: str
    tensor: str
    breakdown: Mapping[str, int]
    call: int
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPoint:
    """Live bytes at a framework hook boundary, e.g. ``pre_fwd.begin:layers.0``."""

    step: int
    mark: str
    allocated: int
    call: int
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """The whole curve by category, for pictures: one row after each run of allocs or frees.

    ``call[i]`` and ``fraction[i]`` (0..1 of that call's launches done) place row i in time;
    ``bytes[i, c]`` is what category ``categories[c]`` holds from there on.
    """

    categories: tuple[str, ...]
    call: NDArray[np.int64]
    fraction: NDArray[np.float64]
    bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What a view needs to know of each call: its step, its phase's value, its block's name."""

    step: tuple[int, ...]
    phase: tuple[str, ...]
    name: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """The replay of one class' program.

    ``phases`` in order of execution; ``peak`` the highest of them (the first, on ties);
    ``resident[k]`` the bytes live after step k; ``exact`` False if a clock would be needed.
    """

    phases: tuple[PhasePeak, ...]
    peak: PhasePeak
    alive_at_peak: tuple[LiveTensor, ...]
    marks: tuple[MarkPoint, ...]
    curve: MemoryCurve
    calls: CallFacts
    resident: tuple[int, ...]
    exact: bool = True
