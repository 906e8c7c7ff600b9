"""DeepSpeed: ZeRO's stages, each as its engine runs it.

Read in DeepSpeed 0.19: deepspeed/runtime/engine.py, which picks an optimizer by stage and dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import UnsupportedError
from simulator.lowering.framework.deepspeed.partitioned import Partitioned
from simulator.lowering.units import Unit
from simulator.plan.plan import Plan

__all__ = ["deepspeed"]


def deepspeed(plan: Plan, units: Sequence[Unit]) -> Partitioned:
    """The optimizer that the engine wraps around a plan's.

    Raises:
        UnsupportedError: a stage that this version does not lower.
    """
    stage = plan.parallelism.zero.stage
    if stage not in (1, 2):
        raise UnsupportedError(f"ZeRO stage {stage} is not yet supported; supported: 1, 2")
    return Partitioned(plan, units)
