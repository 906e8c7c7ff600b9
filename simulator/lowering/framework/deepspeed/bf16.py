"""ZeRO-1 with bf16 weights and fp32 accumulation: whole fp32 gradients for the whole run.

Read in DeepSpeed 0.19: deepspeed/runtime/bf16_optimizer.py, ``BF16_Optimizer``, which
``_do_optimizer_sanity_check`` of deepspeed/runtime/engine.py picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simulator.kernels import Elementwise
from simulator.lowering.assembly import Roles
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.deepspeed.building import (
    ZERO,
    everyone,
    write_built,
    write_flattened,
    write_master,
)
from simulator.lowering.framework.deepspeed.flat import group_of
from simulator.lowering.framework.deepspeed.setting import setting_of
from simulator.lowering.framework.deepspeed.stepping import (
    MODULE,
    collective,
    host_reads,
    partition_shards,
    write_new_weights,
)
from simulator.lowering.framework.hooks import Backward, Hook, Round
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.framework.single import Single, gradients_of, keep
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Stream, Tensor


class Bf16Optimizer(Single):
    """``BF16_Optimizer``: gradients in bf16 are added to the fp32 ones when a backward is done."""

    resident = frozenset({"shard"})

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.plan, self._units = plan, units
        self.s = setting_of(plan)
        self.group = group_of(units, self.s.ranks)

    @property
    def _everyone(self) -> Roles:
        return everyone(self._units)

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """The partition of the master copy, which counts with the embedding."""
        return partition_shards(kind, self.group.partition, self.s)

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """The module as it is built."""
        write_built(w, self.s, kind)

    def start(self) -> Hook:
        """``deepspeed.initialize``."""
        return Hook(write=self._start, roles=self._everyone)

    def _start(self, w: BlockWriter) -> None:
        write_flattened(w, self.s, self.group, self._units)
        write_master(w, self.s, self.group.partition)
        category = Category.GRADIENTS
        tensor = flat("gradients", self.group.numel, self.s.accumulation, category, MODULE)
        w.alloc(tensor, slot=w.shared(ZERO, "shard.gradients"))
        w.launch(copy("gradients.zeros", 0, tensor.requested), MODULE)

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """Gradients wait whole; they are zeroed, not dropped, before the next backward."""
        kind = self._units[unit].kind
        if micro.later:
            return Backward(existing=partial(gradients_of, kind=kind), key=("adds",))
        return Backward(after=keep, left="gradient")

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """``update_hp_grads``, and the last one's ``allreduce_gradients``."""
        write = partial(self._end_backward, last=micro.last)
        return Hook(write=write, key=("accumulate", micro.last), roles={ZERO: ZERO})

    def _end_backward(self, w: BlockWriter, *, last: bool) -> None:
        for member in self.group.members:
            tensor = self._temporary("gradient.cast", member.numel, wide=True)
            slot, size = w.alloc(tensor), tensor.requested
            read = member.numel * self.s.model.itemsize
            w.launch(copy("gradient.cast", read, size), member.module)
            w.launch(copy("gradient.add", 2 * size, size), member.module)
            w.free(slot)
        if last:
            self._all_reduce(w)

    def _temporary(self, name: str, numel: int, *, wide: bool) -> Tensor:
        dtype = self.s.accumulation if wide else self.s.model
        return flat(name, numel, dtype, Category.REDUCE_SCATTER, MODULE)

    def _all_reduce(self, w: BlockWriter) -> None:
        """The fp32 gradients are cast to bf16, reduced and copied back."""
        tensor = self._temporary("gradients.cast", self.group.numel, wide=False)
        slot, size = w.alloc(tensor), self.group.numel * self.s.accumulation.itemsize
        w.launch(copy("gradients.cast", size, tensor.requested), MODULE)
        requested, stream = tensor.requested, Stream.COMPUTE
        collective(w, self.s, "all_reduce", requested, "all_reduce gradients", stream)
        w.launch(copy("gradients.copy_back", tensor.requested, size), MODULE)
        w.free(slot)

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """The optimizer's own step clips."""

    def rounds(self) -> Sequence[Round]:
        """One, over the partition; the gradients it is handed are a part of the whole ones."""
        return (Round(before=Hook(write=self._before), after=Hook(write=self._after)),)

    def _before(self, w: BlockWriter) -> None:
        size = self.group.numel * self.s.accumulation.itemsize
        w.launch(Elementwise(name="norm", kind="optimizer", read=size, written=0), MODULE)
        host_reads(w, "norm.item")
        if self.s.unscales:
            w.launch(Elementwise(name="clip", kind="optimizer", read=size, written=size), MODULE)

    def _after(self, w: BlockWriter) -> None:
        write_new_weights(w, self.s, self.group.partition, self.group.numel)
        size = self.group.numel * self.s.accumulation.itemsize
        w.launch(copy("gradients.zero", 0, size), MODULE)
