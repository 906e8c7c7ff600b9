"""AdamW with states of 8 and 4 bits, as torchao keeps them.

Source: torchao/optim/adam.py, subclass_8bit.py, subclass_4bit.py, subclass_fp8.py (0.18). A state
is quantised block-wise where a rank's tensor has at least 4096 elements and a whole number of
blocks; else it is kept in the parameter's dtype. Each state has a quantisation map of its own.

``single_param_adam`` is compiled: one kernel a parameter; what the compiler's kernels hold for
themselves is not known without it and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.lowering.optimizer.op import Group, Op, Ops, Optimizer
from simulator.lowering.optimizer.tensors import element_wise, zeros
from simulator.lowering.shards import Shard
from simulator.plan.plan import Hyper, Precision

SMALLEST = 4096
"""Elements from which a tensor is quantised ("follow bitsandbytes")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a state is kept: codes, and an fp32 scale a block; a map of so many entries."""

    codes: DType
    codes_per_item: int
    block: int
    map_entries: int


FORMATS = {
    "adamw-torchao-8bit": Format(codes=DType.UINT8, codes_per_item=1, block=256, map_entries=256),
    "adamw-4bit": Format(codes=DType.UINT8, codes_per_item=2, block=128, map_entries=16),
    "adamw-fp8": Format(codes=DType.FP8, codes_per_item=1, block=256, map_entries=0),
}


def compiled(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """Parameter by parameter; a state is born just before its first update."""
    adamw = _AdamW(name, FORMATS[name], precision)
    return (Group(name=name, looped=True, step=adamw.step),)


class _AdamW:
    def __init__(self, name: str, kept: Format, precision: Precision) -> None:
        self.name, self.kept, self.precision = name, kept, precision

    def step(self, shard: Shard, first: bool) -> Ops:
        """The first step makes the states; each reads and writes them, and the parameter."""
        states = [op for moment in ("exp_avg", "exp_avg_sq") for op in self._state(shard, moment)]
        kept = sum(op.makes[1].requested for op in states if op.makes)
        parameter = shard.numel * self.precision.parameters.itemsize
        gradient = shard.numel * self.precision.gradients.itemsize
        read, written = parameter + gradient + kept, parameter + kept
        update = Op(work=element_wise(f"{self.name}.update", read, written))
        return (*states, update) if first else (update,)

    def _state(self, shard: Shard, name: str) -> Ops:
        kept, numel = self.kept, shard.numel
        if numel < SMALLEST or numel % kept.block:
            return (zeros(shard, name, self.precision.parameters),)
        codes = zeros(shard, f"{name}.codes", kept.codes, (numel // kept.codes_per_item,))
        scale = zeros(shard, f"{name}.scale", DType.FP32, (numel // kept.block,))
        if not kept.map_entries:
            return codes, scale
        return codes, scale, zeros(shard, f"{name}.qmap", DType.FP32, (kept.map_entries,))
