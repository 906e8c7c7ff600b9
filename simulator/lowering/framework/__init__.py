"""Frameworks as hooks: each writes into the block being written and never owns the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simulator.lowering.framework.fsdp2 import Fsdp2
from simulator.lowering.units import Kind
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan


class Framework(Protocol):
    """What a data-parallel framework does around a model's modules.

    Roles name units relative to the one being written: ``own``, ``previous`` (before it in this
    pass), ``next`` (the one that backward gathers ahead), ``pending`` (whose reduction is still in
    flight). Each hook writes instructions; what it keeps between hooks lives in shared slots.
    """

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """Allocate what a unit holds for the whole run."""

    def begin_forward(self, w: BlockWriter) -> None:
        """Before the first module of a micro-step."""

    def pre_forward(self, w: BlockWriter, kind: Kind, previous: Kind | None) -> None:
        """Before a unit's first kernel."""

    def between_modules(self, w: BlockWriter, kind: Kind) -> None:
        """Between two modules of one unit."""

    def post_forward(self, w: BlockWriter, kind: Kind) -> None:
        """After a unit's last kernel."""

    def end_forward(self, w: BlockWriter) -> None:
        """After the last unit (role ``own``) of the model."""

    def pre_backward(self, w: BlockWriter, kind: Kind, ahead: Kind | None, *, first: bool) -> None:
        """Before a unit's backward; ``ahead`` is the unit that runs next. ``first``: none ran."""

    def post_backward(
        self, w: BlockWriter, kind: Kind, gradients: dict[str, int], pending: Kind | None
    ) -> None:
        """When a unit's gradients (slots by weight name) and its input's are there."""

    def end_backward(self, w: BlockWriter, pending: Kind) -> None:
        """After the last unit's backward."""

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """Drop a unit's gradients."""


FRAMEWORKS: dict[str, Callable[[Plan], Framework]] = {"fsdp2": Fsdp2}
"""Framework name -> constructor from a plan."""
