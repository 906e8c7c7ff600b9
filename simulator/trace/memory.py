"""WAIST 2, memory: what the replay of a program says about one class of ranks.

Without an allocator bytes are sums of requests rounded to 512, in host issue order; with one they
are its own counters.
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
    ``reserved`` is the phase's own peak of the allocator's segments, None without an allocator.
    """

    step: int
    phase: str
    allocated: int
    at: str
    tensor: str
    breakdown: Mapping[str, int]
    call: int
    fraction: float
    reserved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPoint:
    """Live bytes at a framework hook boundary, e.g. ``pre_fwd.begin:layers.0``."""

    step: int
    mark: str
    allocated: int
    call: int
    fraction: float
    reserved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """The whole curve by category, for pictures: one row after each run of allocs or frees.

    ``call[i]`` and ``fraction[i]`` (0..1 of that call's launches done) place row i in time;
    ``bytes[i, c]`` is what category ``categories[c]`` holds from there on, ``reserved[i]`` what
    the allocator has mapped (None without one).
    """

    categories: tuple[str, ...]
    call: NDArray[np.int64]
    fraction: NDArray[np.float64]
    bytes: NDArray[np.int64]
    reserved: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The first request that the device could not serve, in bytes, as PyTorch's message has it.

    ``free``: what the device had left; ``reserved``: the allocator's segments, of which
    ``allocated`` were in use.
    """

    step: int
    phase: str
    at: str
    tensor: str
    requested: int
    free: int
    reserved: int
    allocated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorReport:
    """What the caching allocator did under ``settings`` (``PYTORCH_CUDA_ALLOC_CONF``).

    ``peak_reserved`` is reached first in ``peak_step`` and ``peak_phase``, where ``peak_at``
    allocates ``peak_tensor``. ``retries``, by step: how often all cached segments were given back
    to find room. ``capacity``: what of the device it could have (None: no end). ``others``: the
    peak of reserved under other settings that the run may have had, by settings.
    """

    settings: str
    peak_reserved: int
    peak_step: int
    peak_phase: str
    peak_at: str
    peak_tensor: str
    retries: tuple[int, ...]
    shortage: Shortage | None
    capacity: int | None
    others: Mapping[str, int]


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
    ``allocator`` is None where nothing but the ledger of requests was kept.
    """

    phases: tuple[PhasePeak, ...]
    peak: PhasePeak
    alive_at_peak: tuple[LiveTensor, ...]
    marks: tuple[MarkPoint, ...]
    curve: MemoryCurve
    calls: CallFacts
    resident: tuple[int, ...]
    exact: bool = True
    allocator: AllocatorReport | None = None
