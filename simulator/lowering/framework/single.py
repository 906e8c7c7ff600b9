"""One GPU and no framework: parameters are whole, and gradients stay where autograd makes them.

``AccumulateGrad`` takes the first gradient as it is and adds every later one in place
(torch/csrc/autograd/functions/accumulate_grad.h); ``zero_grad`` drops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simulator.errors import UnsupportedError
from simulator.lowering.clipping import clip_tensors
from simulator.lowering.framework.hooks import (
    ONE_ROUND,
    Backward,
    Forward,
    Gradients,
    Hook,
    Round,
)
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.optimizer.in_backward import InBackward, in_backward
from simulator.lowering.shards import Shard, alloc_shards, shards_of, trained
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Stream


class Single:
    """No hooks at all."""

    resident = frozenset({"shard"})
    _optimizer: InBackward | None = None

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        if plan.parallelism.world_size > 1:
            raise UnsupportedError("framework 'single' trains on one GPU: use ddp or fsdp2")
        self.plan, self._units = plan, units
        self._optimizer = in_backward(plan)

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """The weights themselves."""
        return trained(shards_of(kind.graph, 1))

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """Each weight is an allocation of its own."""
        alloc_shards(w, shards_of(kind.graph, 1), self.plan.training.precision.parameters)

    def start(self) -> Hook:
        """Nothing."""
        return Hook()

    def begin_forward(self, micro: MicroStep, step: int) -> Hook:
        """Nothing."""
        return Hook()

    def forward(self, unit: int, micro: MicroStep, step: int) -> Forward:
        """Nothing."""
        return Forward()

    def end_forward(self, micro: MicroStep, step: int) -> Hook:
        """Nothing."""
        return Hook()

    def begin_backward(self, *, first: bool) -> Hook:
        """Nothing."""
        return Hook()

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """Gradients stay, or are added to those of the micro-steps before."""
        kind = self._units[unit].kind
        if self._optimizer is not None:
            step_one = partial(self._step, kind=kind, first=micro.births)
            return Backward(accumulated=step_one, key=("steps", micro.births))
        if micro.later:
            return Backward(existing=partial(gradients_of, kind=kind), key=("adds",))
        return Backward(after=keep, left="gradient")

    def _step(self, w: BlockWriter, name: str, slot: int, kind: Kind, *, first: bool) -> None:
        """The hook of one parameter: its step, and its gradient goes."""
        assert self._optimizer is not None
        (shard,) = (each for each in self.shards(kind) if each.weight.name == name)
        self._optimizer.step(w, shard, Stream.COMPUTE, "own", first=first)
        w.free(slot)

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """Nothing."""
        return Hook()

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """``clip_grad_norm_`` over plain tensors."""
        clip_tensors(w, shards, self.plan.training.trained_precision.gradients)

    def warm_up(self) -> Sequence[Round]:
        """None."""
        return ()

    def rounds(self) -> Sequence[Round]:
        """One."""
        return ONE_ROUND

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """Each gradient goes, unless its own hook has dropped it."""
        if self._optimizer is None:
            w.free_all(gradients_of(w, kind).values())

    def end_step(self, w: BlockWriter) -> None:
        """Nothing."""


def gradients_of(w: BlockWriter, kind: Kind) -> Gradients:
    """The gradients of a unit's own weights, by name."""
    names = [weight.name for weight in kind.graph.trained if not weight.tied]
    return {name: w.shared("own", f"gradient.{name}") for name in names}


def keep(w: BlockWriter, gradients: Gradients) -> None:
    """Let a unit's gradients outlive its backward."""
    for name, slot in gradients.items():
        w.promote(slot, "own", f"gradient.{name}", Category.GRADIENTS)
