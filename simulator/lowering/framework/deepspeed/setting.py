"""What DeepSpeed needs to know of a plan: dtypes, ranks, its knobs."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.plan.plan import Plan
from simulator.plan.zero import Zero
from simulator.program.instructions import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``model``: dtype of parameters and of autograd's gradients, which are reduced in it;
    ``accumulation``: of the gradients that wait for the step; ``master``: of what the optimizer
    steps. ``unscales``: the step multiplies gradients, to clip them or to undo a loss scale.
    """

    model: DType
    accumulation: DType
    master: DType
    ranks: int
    zero: Zero
    unscales: bool

    @property
    def compact(self) -> bool:
        """Gradients are accumulated in fp32, where the model's are narrower."""
        return self.accumulation is not self.model

    @property
    def reduction(self) -> Stream:
        """The stream on which buckets are reduced."""
        return Stream.ALL_REDUCE if self.zero.overlap_comm else Stream.COMPUTE


def setting_of(plan: Plan) -> Setting:
    """The setting of a plan."""
    precision = plan.training.trained_precision
    return Setting(
        model=precision.parameters,
        accumulation=precision.gradients,
        master=precision.master or precision.parameters,
        ranks=plan.parallelism.dp_shard,
        zero=plan.parallelism.zero,
        unscales=plan.training.clip_grad_norm is not None or precision.parameters is DType.FP16,
    )
