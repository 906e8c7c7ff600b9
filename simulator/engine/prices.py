"""What things cost on the clock: the engine's only input besides a deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.hardware.gpu import Gpu
from simulator.program.program import Block
from simulator.timing.prices import (
    HOST_COLLECTIVE_NS,
    HOST_LAUNCH_NS,
    OVERLAP,
    Overlap,
    launch_ns,
)

NO_OVERLAP_COST = Overlap(compute=(1, 1), communication=(1, 1))
"""Collectives and compute on one GPU do not slow each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """``launch_ns(block, gpu)``: ns of each Launch of a block, in the order of its instructions.

    ``host_*`` are ns of host time for each instruction of that sort; an ``event`` instruction is
    a Record or a Wait. ``serial_groups``: collectives of one group run one after the other, in
    the order in which they were issued and whatever their streams, as those of one NCCL
    communicator do.
    """

    launch_ns: Callable[[Block, Gpu], Sequence[int]] = launch_ns
    host_launch_ns: int = HOST_LAUNCH_NS
    host_collective_ns: int = HOST_COLLECTIVE_NS
    host_event_ns: int = 0
    overlap: Overlap = OVERLAP
    serial_groups: bool = False
