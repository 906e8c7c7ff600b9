"""Optimizers: what ``step()`` allocates and launches. One file an optimizer, joined here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.lowering.optimizer.adamw import AdamWForeach, AdamWForLoop, AdamWFused
from simulator.lowering.optimizer.sgd import SgdForeach
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Precision


class Optimizer(Protocol):
    """``step()`` is written as ``passes`` over the units, in parameter order.

    Role ``own`` is the unit, ``previous`` the one before it. Temporaries that live across units
    or passes are shared slots.
    """

    @property
    def passes(self) -> Sequence[str]:
        """Names of the passes of one step, in order."""

    def states(self, w: BlockWriter, shards: Sequence[Shard]) -> None:
        """Born in the first step: allocate the unit's states."""

    def run_pass(
        self, w: BlockWriter, name: str, shards: Sequence[Shard], *, first: bool, last: bool
    ) -> None:
        """Write one pass over one unit's parameters; ``first`` and ``last`` of the model."""


OPTIMIZERS: dict[tuple[str, str], Callable[[Precision], Optimizer]] = {
    ("adamw", "foreach"): AdamWForeach,
    ("adamw", "for-loop"): AdamWForLoop,
    ("adamw", "fused"): AdamWFused,
    ("sgd", "foreach"): SgdForeach,
}
"""(name, implementation) -> constructor from a precision."""
