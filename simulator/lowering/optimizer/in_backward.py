"""An optimizer a parameter, each stepped in a hook as soon as its gradient is there.

Source: torchtitan's ``OptimizersInBackwardContainer`` and torchtune's ``optimizer_in_bwd``, by
``Tensor.register_post_accumulate_grad_hook``: ``step``, then ``zero_grad``.
"""

from __future__ import annotations

from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.optimizer.writing import write_alone
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan, Training
from simulator.program.instructions import Stream


class InBackward:
    """The optimizers of one training."""

    def __init__(self, training: Training) -> None:
        make = OPTIMIZERS[training.optimizer_choice]
        self.optimizer = make(training.optimizer, training.trained_precision, training.hyper)

    def step(self, w: BlockWriter, shard: Shard, stream: Stream, role: str, *, first: bool) -> None:
        """One parameter's step; its states are registers of ``role``, born in the first."""
        group = next(group for group in self.optimizer if group.takes(shard))
        born = (*group.once([shard]), *group.states(shard)) if first else ()
        write_alone(w, shard, (*born, *group.step(shard, first)), stream, role)


def in_backward(plan: Plan) -> InBackward | None:
    """None where the optimizer steps after backward, or on the host."""
    asked = plan.training.optimizer_in_backward and not plan.offload_parameters
    return InBackward(plan.training) if asked else None
