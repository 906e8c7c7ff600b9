"""What a block's launches cost on a GPU, as the integers that the clock runs on.

Float seconds become nanoseconds here and nowhere else: once, when a block is compiled.
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple

from simulator.hardware.gpu import Gpu
from simulator.program.instructions import Launch
from simulator.program.program import Block
from simulator.timing.constants import constants
from simulator.timing.kernels import kernel_seconds

Ratio = tuple[int, int]
"""An exact fraction: numerator and denominator."""


class Overlap(NamedTuple):
    """Rates while a collective and kernels share one device's SMs, as fractions of those alone."""

    compute: Ratio
    communication: Ratio


_HOST = constants("host")

HOST_LAUNCH_NS: int = _HOST["launch"]["ns"]
"""Nanoseconds of host time to enqueue one kernel."""

HOST_COLLECTIVE_NS: int = _HOST["collective"]["ns"]
"""Nanoseconds of host time to enqueue one collective."""

OVERLAP = Overlap(*(tuple(_HOST["overlap"][what]) for what in Overlap._fields))
"""Source: arXiv:2507.03114 (compute 18.9 % slower on average, 40 % at most)."""


def to_ns(seconds: float) -> int:
    """Whole nanoseconds, half up, at least 1.

    >>> to_ns(2.5e-9), to_ns(0.0)
    (3, 1)
    """
    return max(1, floor(seconds * 1e9 + 0.5))


def launch_ns(block: Block, gpu: Gpu) -> tuple[int, ...]:
    """Nanoseconds on ``gpu`` of each Launch of ``block``, in order of issue."""
    return tuple(
        to_ns(kernel_seconds(instruction.kernel, gpu))
        for instruction in block.instructions
        if isinstance(instruction, Launch)
    )
