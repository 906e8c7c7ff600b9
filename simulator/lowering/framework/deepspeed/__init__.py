"""DeepSpeed: ZeRO's stages, each as its engine runs them.

Read in DeepSpeed 0.19: deepspeed/runtime/engine.py, which picks an optimizer by stage and dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.lowering.framework.deepspeed.bf16 import Bf16Optimizer
from simulator.lowering.framework.deepspeed.partitioned import Partitioned
from simulator.lowering.framework.deepspeed.replicated import Replicated
from simulator.lowering.units import Unit
from simulator.plan.plan import Plan

__all__ = ["deepspeed"]


def deepspeed(plan: Plan, units: Sequence[Unit]) -> Bf16Optimizer | Partitioned | Replicated:
    """The optimizer that the engine wraps around a plan's.

    Raises:
        UnsupportedError: what the engine refuses, or this version does not lower.
    """
    stage, precision = plan.parallelism.zero.stage, plan.training.trained_precision
    widens = precision.gradients is not precision.parameters
    if stage == 3:
        raise UnsupportedError("ZeRO stage 3 is not yet supported; supported: 0, 1, 2")
    if stage < 2 and widens:
        if stage == 1 and precision.parameters is DType.BF16:
            return Bf16Optimizer(plan, units)
        text = f"gradients in another dtype than parameters at stage {stage} are not supported"
        raise UnsupportedError(f"{text}; supported: stage 2")
    return Partitioned(plan, units) if stage else Replicated(plan, units)
