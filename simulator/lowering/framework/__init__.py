"""Frameworks as hooks: each says what it writes where in a step, and never owns the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.lowering.framework.ddp import Ddp
from simulator.lowering.framework.deepspeed import deepspeed
from simulator.lowering.framework.fsdp1 import Fsdp1
from simulator.lowering.framework.fsdp2 import Fsdp2
from simulator.lowering.framework.hooks import Backward, Forward, Hook, Round
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.framework.single import Single
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan

__all__ = ["FRAMEWORKS", "VIEWS", "Framework", "MicroStep"]


class Framework(Protocol):
    """What a data-parallel framework does around a model's modules.

    A unit is asked for by its index in forward order, and every hook once, in the host's order. In
    the code, role ``own`` is that unit, and any unit's label is a role at ``begin_forward`` and
    ``end_backward``; what lives between hooks lives in shared slots. ``step`` counts from 0: the
    first may differ from those after it.
    """

    @property
    def resident(self) -> frozenset[str]:
        """First words of its registers that live as long as the job."""

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """A unit's local parameters that are trained, as the optimizer sees them."""

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """Allocate what a unit's parameters hold for the whole run."""

    def start(self) -> Hook:
        """Allocate what the framework itself holds for the whole run, once all units are there."""

    def begin_forward(self, micro: MicroStep, step: int) -> Hook:
        """Before the first module of a micro-step."""

    def forward(self, unit: int, micro: MicroStep, step: int) -> Forward:
        """Around a unit's forward."""

    def end_forward(self, micro: MicroStep, step: int) -> Hook:
        """After the last module of the model."""

    def begin_backward(self, *, first: bool) -> Hook:
        """When the gradient of an output of the model is there; ``first``: of any at all."""

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """Around a unit's backward."""

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """After the last unit's backward, in the engine's final callback."""

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """Clip the gradients of all of a rank's ``shards`` by their norm over all ranks."""

    def warm_up(self) -> Sequence[Round]:
        """Calls of ``optimizer.step()`` before the first forward, in which states are born."""

    def rounds(self) -> Sequence[Round]:
        """The calls of ``optimizer.step()`` that make one training step."""

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """Drop a unit's gradients."""

    def end_step(self, w: BlockWriter) -> None:
        """After ``zero_grad`` of every unit."""


FRAMEWORKS: dict[str, Callable[[Plan, Sequence[Unit]], Framework]] = {
    "ddp": Ddp,
    "deepspeed": deepspeed,
    "fsdp1": Fsdp1,
    "fsdp2": Fsdp2,
    "single": Single,
}
"""Framework name -> constructor from a plan and the model's units."""

VIEWS = frozenset({"fsdp1"})
"""Frameworks whose modules compute with views of larger parameters, not with parameters."""
