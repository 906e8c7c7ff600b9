"""Frameworks as hooks: each writes into the block being written and never owns the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.lowering.framework.fsdp2 import Fsdp2
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan

__all__ = ["FRAMEWORKS", "Framework", "MicroStep"]


class Framework(Protocol):
    """What a data-parallel framework does around a model's modules.

    Roles name units relative to the one being written. ``own``: this one. ``behind``: the group
    whose gathered buffer forward still holds. ``ahead``, ``ahead.1``, ...: groups that are
    gathered before they run. ``pending``: the group whose reduction is in flight. ``root``: what
    no unit of its own wraps. Any unit's label is a role too. Each hook writes instructions; what
    it keeps between hooks lives in shared slots.
    """

    root: bool
    """Whether the root has parameters of its own, and so is a group."""

    def gathered_ahead(self, unit: int) -> Sequence[int]:
        """Indexes of the units that forward gathers early, just before unit number ``unit``."""

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """Allocate what a unit's parameters hold for the whole run."""

    def begin_forward(self, w: BlockWriter, micro: MicroStep) -> None:
        """Before the first module of a micro-step."""

    def pre_forward(
        self,
        w: BlockWriter,
        kind: Kind,
        behind: Kind | None,
        ahead: Sequence[Kind],
        micro: MicroStep,
        *,
        gathered: bool,
    ) -> None:
        """Before a unit's first kernel. ``gathered``: an earlier unit has gathered it."""

    def between_modules(self, w: BlockWriter, kind: Kind) -> None:
        """Between two modules of one unit."""

    def post_forward(self, w: BlockWriter, kind: Kind) -> None:
        """After a unit's last kernel."""

    def end_forward(self, w: BlockWriter, micro: MicroStep) -> None:
        """After the last module of the model."""

    def begin_backward(self, w: BlockWriter, ahead: Kind | None) -> None:
        """When the gradient of the model's output is there; ``ahead`` is the last wrapped unit."""

    def pre_backward(self, w: BlockWriter, kind: Kind, ahead: Kind | None, *, first: bool) -> None:
        """Before a unit's backward; ``ahead`` runs next. ``first``: no group ran before."""

    def deferred(self, kind: Kind) -> bool:
        """Whether a wrapped unit's ``post_backward`` waits for the end of backward."""

    def adds_in_place(self, micro: MicroStep) -> bool:
        """Whether autograd adds into gradients that an earlier micro-step left."""

    def waits_as(self, micro: MicroStep) -> str:
        """First word of the registers in which the root's gradients wait for the root."""

    def post_backward(
        self,
        w: BlockWriter,
        kind: Kind,
        gradients: dict[str, int],
        pending: Kind | None,
        micro: MicroStep,
    ) -> None:
        """When a unit's gradients (slots by weight name) and its input's are there."""

    def end_backward(self, w: BlockWriter, pending: bool, micro: MicroStep) -> None:
        """After the last unit's backward. ``pending``: some reduction is in flight."""

    def zero_grad(self, w: BlockWriter, kind: Kind | None) -> None:
        """Drop a unit's gradients (None: the root's)."""


FRAMEWORKS: dict[str, Callable[[Plan, Sequence[Unit]], Framework]] = {"fsdp2": Fsdp2}
"""Framework name -> constructor from a plan and the model's units."""
