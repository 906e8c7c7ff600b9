"""Optimizers: what ``step()`` allocates and launches. One file an optimizer, joined here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.lowering.shards import Shard
from simulator.lowering.optimizer.adamw import AdamWForeach, AdamWFused
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Precision


class Optimizer(Protocol):
    """``step()`` is written as passes over the units, in parameter order.

    Role ``own`` is the unit. Temporaries that live across a pass are shared slots.
    """

    def states(self, w: BlockWriter, shards: Sequence[Shard]) -> None:
        """Born in the first step: allocate the unit's states."""

    def passes(self) -> tuple[str, ...]:
        """Names of the passes of one step, in order."""

    def run_pass(self, w: BlockWriter, name: str, shards: Sequence[Shard]) -> None:
        """Write one pass over one unit's parameters."""


OPTIMIZERS: dict[tuple[str, str], Callable[[Precision], Optimizer]] = {
    ("adamw", "foreach"): AdamWForeach,
    ("adamw", "fused"): AdamWFused,
}
"""(name, implementation) -> constructor from a precision."""
