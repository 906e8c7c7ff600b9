"""Stage 0: whole weights, gradients and states on every rank, reduced when backward is done.

Read in DeepSpeed 0.19: deepspeed/runtime/engine.py, ``allreduce_gradients``,
``buffered_allreduce_fallback``; deepspeed/runtime/fp16/unfused_optimizer.py,
``FP16_UnfusedOptimizer``, which the engine wraps around any optimizer of 16-bit weights but its own
``FusedAdam``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.clipping import clip_tensors
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.deepspeed.building import (
    everyone,
    write_built,
    write_taken_over,
)
from simulator.lowering.framework.deepspeed.flat import Member, group_of
from simulator.lowering.framework.deepspeed.setting import setting_of
from simulator.lowering.framework.deepspeed.stepping import MODULE, collective, host_reads
from simulator.lowering.framework.hooks import ONE_ROUND, Hook, Round
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.framework.single import Single
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Stream, Tensor

BUCKET = 500_000_000
"""Elements from which a bucket is reduced (``MEMORY_OPT_ALLREDUCE_SIZE``)."""

HANDED = "step.gradient"
"""First word of registers of the fp32 gradients that the optimizer is handed."""


class Replicated(Single):
    """The engine at stage 0."""

    resident = frozenset({"shard"})

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.plan, self._units = plan, units
        self.s = setting_of(plan)
        self.members = group_of(units, 1).members
        self._copies = self.s.master is not self.s.model

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """The module as it is built."""
        write_built(w, self.s, kind)

    def start(self) -> Hook:
        """``deepspeed.initialize``: 16-bit weights get fp32 copies, each through a clone."""
        return Hook(write=self._start, roles=everyone(self._units))

    def _start(self, w: BlockWriter) -> None:
        for label, weight, slot in list(write_taken_over(w, self.s, self._units)):
            w.promote(slot, label, f"shard.{weight.name}")
        if not self._copies:
            return
        for member in self.members:
            clone = w.alloc(self._tensor(member, "clone", self.s.model))
            master = self._tensor(member, "master", self.s.master, Category.OPTIMIZER)
            w.alloc(master, slot=w.shared(self._label(member), f"shard.{member.name}.master"))
            read = member.numel * self.s.model.itemsize
            w.launch(copy("master.cast", read, master.requested), MODULE)
            w.free(clone)

    def _label(self, member: Member) -> str:
        return self._units[member.unit].label

    @staticmethod
    def _tensor(
        member: Member,
        name: str,
        dtype: DType,
        category: Category = Category.OPTIMIZER_TEMPORARIES,
    ) -> Tensor:
        return flat(f"{member.name}.{name}", member.numel, dtype, category, member.module)

    def warm_up(self) -> Sequence[Round]:
        """``initialize_optimizer_states``: a step over gradients of zeros, in either dtype."""
        if not self._copies:
            return ()
        roles = everyone(self._units)
        before, after = Hook(write=self._zeros, roles=roles), Hook(write=self._drop, roles=roles)
        return (Round(before=before, after=after),)

    def _zeros(self, w: BlockWriter) -> None:
        for dtype, word in ((self.s.model, "zeros"), (self.s.master, HANDED)):
            for member in self.members:
                tensor = self._tensor(member, "zeros", dtype)
                w.alloc(tensor, slot=w.shared(self._label(member), f"{word}.{member.name}"))
                w.launch(copy("zeros", 0, tensor.requested), MODULE)

    def _drop(self, w: BlockWriter) -> None:
        for word in ("zeros", HANDED):
            w.free_all(self._slots(w, word))

    def _slots(self, w: BlockWriter, word: str) -> Iterator[int]:
        return (w.shared(self._label(m), f"{word}.{m.name}") for m in self.members)

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """``allreduce_gradients`` of the last micro-step: bucket by bucket through a flat copy."""
        return Hook(write=self._all_reduce, key=("all_reduce",)) if micro.last else Hook()

    def _all_reduce(self, w: BlockWriter) -> None:
        bucket = count = 0
        for number, member in enumerate(self.members):
            bucket, count = bucket + member.numel, count + 1
            if bucket > BUCKET or number == len(self.members) - 1:
                self._reduce(w, bucket, copied=count > 1)
                bucket = count = 0

    def _reduce(self, w: BlockWriter, numel: int, *, copied: bool) -> None:
        tensor = flat("bucket.flat", numel, self.s.model, Category.REDUCE_SCATTER, MODULE)
        size, slot = tensor.requested, w.alloc(tensor) if copied else None
        if copied:
            w.launch(copy("bucket.flatten", size, size), MODULE)
        collective(w, self.s, "all_reduce", size, "all_reduce bucket", Stream.COMPUTE)
        w.launch(copy("bucket.copy_back", size, size), MODULE)
        if slot is not None:
            w.free(slot)

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """fp32 weights as torch clips them; else the optimizer's own step does."""
        if not self._copies:
            clip_tensors(w, shards, self.s.model)

    def rounds(self) -> Sequence[Round]:
        """One; 16-bit gradients are cast before it, and the copies back after it."""
        if not self._copies:
            return ONE_ROUND
        roles = everyone(self._units)
        before = Hook(write=self._before, roles=roles)
        return (Round(before=before, after=Hook(write=self._after, roles=roles)),)

    def _before(self, w: BlockWriter) -> None:
        for what in ("overflow", "norm"):
            for member in self.members:
                cast = self._tensor(member, what, self.s.master)
                slot = w.alloc(cast)
                read = member.numel * self.s.model.itemsize
                w.launch(copy(cast.name, read, cast.requested), MODULE)
                kernel = Elementwise(name=what, kind="optimizer", read=cast.requested, written=0)
                w.launch(kernel, MODULE)
                w.free(slot)
            host_reads(w, f"{what}.item")
        for member in self.members:
            tensor = self._tensor(member, "grad", self.s.master)
            w.alloc(tensor, slot=w.shared(self._label(member), f"{HANDED}.{member.name}"))
            read = member.numel * self.s.model.itemsize
            w.launch(copy("gradient.cast", read, tensor.requested), MODULE)
        size = sum(member.numel for member in self.members) * self.s.master.itemsize
        w.launch(Elementwise(name="unscale", kind="optimizer", read=size, written=size), MODULE)

    def _after(self, w: BlockWriter) -> None:
        w.free_all(self._slots(w, HANDED))
        numel = sum(member.numel for member in self.members)
        read, written = numel * self.s.master.itemsize, numel * self.s.model.itemsize
        w.launch(copy("weights.cast", read, written), MODULE)
