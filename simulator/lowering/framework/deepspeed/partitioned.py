"""ZeRO-1 and 2: weights are whole, gradients and states are cut into partitions.

Read in DeepSpeed 0.19: deepspeed/runtime/zero/stage_1_and_2.py, ``DeepSpeedZeroOptimizer``. The
program is rank 0's, whose partition holds the first weights; every partition is as large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from simulator.errors import UnsupportedError
from simulator.lowering.framework.arrivals import arrivals
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.deepspeed.bucketing import Arrival, Reduction, bucketed
from simulator.lowering.framework.deepspeed.building import (
    ZERO,
    everyone,
    write_built,
    write_flattened,
    write_master,
    write_zero_gradient,
)
from simulator.lowering.framework.deepspeed.flat import Member, group_of
from simulator.lowering.framework.deepspeed.reducing import (
    AGAIN,
    PARTITION,
    Reducing,
    write_reducing,
)
from simulator.lowering.framework.deepspeed.setting import setting_of
from simulator.lowering.framework.deepspeed.stepping import (
    MODULE,
    host_reads,
    partition_shards,
    write_handed,
    write_new_weights,
    write_norm,
    write_unscaled,
)
from simulator.lowering.framework.hooks import (
    Backward,
    Hook,
    Round,
    leave_all,
    no_gradients,
)
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.framework.single import Single, gradients_of, keep
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Stream

OWNED = "averaged"
"""First word of registers of gradients that stay where autograd made them until the step."""

HANDED = "step.gradient"
"""Register of the gradient that the optimizer is handed."""

IPG = ("ipg.0", "ipg.1")
"""Registers of the buckets: two where they are reduced while the next fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """What the hook behind a gradient does: reduces what fills the bucket, then lets it in.

    ``home``: the register in which the gradient waits, if it is not copied into the bucket.
    """

    before: Reducing | None
    home: str
    numel: int


class Partitioned(Single):
    """``DeepSpeedZeroOptimizer``."""

    resident = frozenset({"shard"})

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.plan, self._units = plan, units
        self.s = setting_of(plan)
        zero = self.zero = self.s.zero
        self.group = group_of(units, self.s.ranks, round_robin=zero.round_robin_gradients)
        self._members = {(member.unit, member.name): member for member in self.group.members}
        order = [self._members[found.unit, found.name] for found in arrivals(units)]
        if not self._in_backward(last=True):
            order = list(self.group.members)
        if not zero.contiguous_gradients and zero.overlap_comm:
            text = "overlap_comm with contiguous_gradients: false is not yet supported"
            raise UnsupportedError(f"{text}; supported: contiguous_gradients: true")
        self._buckets = bucketed(order, self.group, zero, compact=self.s.compact)
        self._first = arrivals(units)[0]
        self._birth = next(m for m in order if self.group.mine(m))

    # -- what lives

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """The partition of the master copy, which counts with the embedding."""
        return partition_shards(kind, self.group.partition, self.s)

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """The module as it is built."""
        write_built(w, self.s, kind)

    def start(self) -> Hook:
        """``deepspeed.initialize``."""
        return Hook(write=self._start, roles=everyone(self._units))

    def _start(self, w: BlockWriter) -> None:
        write_flattened(w, self.s, self.group, self._units)
        write_master(w, self.s, self.group.partition)
        write_zero_gradient(w, self.s, self.group.partition)

    # -- backward

    def _in_backward(self, *, last: bool) -> bool:
        """Whether gradients are reduced as they come: not at stage 1 but to overlap the last."""
        return self.zero.stage == 2 or (self.zero.overlap_comm and last)

    def _sets_up(self, micro: MicroStep) -> bool:
        """``setup_buckets``: they go with the last reduction, at stage 1 that of the step."""
        return self.zero.contiguous_gradients and (self.zero.stage == 2 or not micro.later)

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """The hook behind each gradient fills the bucket, and reduces it when there is no room."""
        kind = self._units[unit].kind
        adds = self.zero.stage == 1 and micro.later
        roles: dict[str, Unit | str] = {ZERO: ZERO}
        first = self._first.name if self._sets_up(micro) and self._first.unit == unit else ""
        if self._in_backward(last=micro.last):
            arriving = {
                a.member.name: self._arriving(a, micro, unit, roles)
                for a in self._buckets.arrivals
                if a.member.unit == unit
            }
            hook = partial(self._arrive, arriving=arriving, first=first)
            found = Backward(accumulated=hook, key=("fills", first, adds, *arriving.items()))
        else:
            hook = partial(self._set_up_at, first=first)
            after = leave_all if adds else keep
            found = Backward(accumulated=hook, after=after, key=("keeps", first, adds))
        existing = partial(gradients_of, kind=kind) if adds else no_gradients
        return replace(found, existing=existing, left="gradient", roles=roles)

    def _set_up_at(self, w: BlockWriter, name: str, slot: int, *, first: str) -> None:
        if name == first:
            self._set_up(w)

    def _set_up(self, w: BlockWriter) -> None:
        for number in range(1 + self.zero.overlap_comm):
            numel, category = self.zero.reduce_bucket_size, Category.REDUCE_SCATTER
            tensor = flat(f"bucket.{number}", numel, self.s.model, category, MODULE)
            w.alloc(tensor, slot=w.shared(ZERO, IPG[number]))

    def _arriving(
        self, arrival: Arrival, micro: MicroStep, unit: int, roles: dict[str, Unit | str]
    ) -> Arriving:
        before = None
        if arrival.before is not None:
            for member in arrival.before.members:
                if member.unit != unit:
                    roles[f"late.{member.unit - unit}"] = self._units[member.unit]
            before = self._reducing(arrival.before, micro, unit)
        stays = arrival.large or not self.zero.contiguous_gradients
        home = self._home(arrival.member, micro) if stays else ""
        return Arriving(before=before, home=home, numel=arrival.member.numel)

    def _arrive(
        self, w: BlockWriter, name: str, slot: int, *, arriving: Mapping[str, Arriving], first: str
    ) -> None:
        found = arriving[name]
        if name == first:
            self._set_up(w)
        if found.before is not None:
            write_reducing(w, self.s, found.before)
        if found.home:
            if w.is_local(slot):
                kept = found.home.startswith(OWNED)
                w.promote(slot, "own", found.home, Category.GRADIENTS if kept else None)
            return
        self._copy_in(w, found.numel)
        w.free(slot)

    def _copy_in(self, w: BlockWriter, numel: int) -> None:
        size = numel * self.s.model.itemsize
        w.launch(copy("gradient.to_bucket", size, size), MODULE)

    def _reducing(self, reduction: Reduction, micro: MicroStep, unit: int | None) -> Reducing:
        """``unit``: in whose block it is written; none: where every unit's role is its label."""
        mine = [(m, self.group.mine(m)) for m in reduction.members if self.group.mine(m)]
        moves = self.zero.contiguous_gradients and not self.s.compact
        again = micro.later and self.zero.stage == 2
        born = self._birth in reduction.members and (moves or (self.s.compact and not again))
        return Reducing(
            chunks=reduction.chunks,
            mine=tuple(m.numel if moves else n for m, n in mine if moves or self.s.compact),
            born=self._held if born else 0,
            home=AGAIN if again and moves else PARTITION,
            drops=tuple(
                (self._role(member, unit), self._home(member, micro))
                for member in reduction.members
                if self._stays(reduction) and self._goes(member)
            ),
        )

    @property
    def _held(self) -> int:
        """Elements of the buffer of reduced gradients: of whole weights, if not ``compact``."""
        if self.s.compact:
            return self.group.partition
        return sum(member.numel for member in self.group.owned)

    def _stays(self, reduction: Reduction) -> bool:
        """Whether gradients wait where autograd made them."""
        return reduction.large or not self.zero.contiguous_gradients

    def _goes(self, member: Member) -> bool:
        """Whether a gradient that waited goes when it is reduced: of others, or copied."""
        if self.group.mine(member):
            return self.zero.contiguous_gradients and not self.s.compact
        return self.zero.stage == 2

    def _home(self, member: Member, micro: MicroStep) -> str:
        """The register of a gradient that waits; at stage 2 the first is added to."""
        waits = self.zero.stage == 2 and not self.zero.contiguous_gradients
        if waits and not self.s.compact and self.group.mine(member) and not micro.later:
            return f"{OWNED}.{member.name}"
        return member.register

    def _role(self, member: Member, unit: int | None) -> str:
        if unit is None:
            return self._units[member.unit].label
        return "own" if member.unit == unit else f"late.{member.unit - unit}"

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """``independent_gradient_partition_epilogue``; at stage 1 for the last micro-step alone."""
        if self.zero.stage == 1 and not micro.last:
            return Hook()
        return Hook(
            write=partial(self._epilogue, micro=micro),
            key=("epilogue", micro.later, micro.last),
            roles={ZERO: ZERO},
        )

    def _epilogue(self, w: BlockWriter, micro: MicroStep) -> None:
        if not self._in_backward(last=micro.last):
            self._reduce_all(w, micro)
        write_reducing(w, self.s, self._reducing(self._buckets.rest, micro, None))
        if self.zero.overlap_comm:
            w.wait_stream((Stream.COMPUTE,), self.s.reduction)
            host_reads(w, "synchronize")
        self._add(w, micro)
        w.free_all(self._left(w, micro))
        if self.zero.contiguous_gradients:
            w.free_all(w.shared(ZERO, name) for name in IPG[: 1 + self.zero.overlap_comm])

    def _reduce_all(self, w: BlockWriter, micro: MicroStep) -> None:
        """``reduce_gradients``: parameter by parameter in their order."""
        for arrival in self._buckets.arrivals:
            if arrival.before is not None:
                write_reducing(w, self.s, self._reducing(arrival.before, micro, None))
            if not arrival.large and self.zero.contiguous_gradients:
                member = arrival.member
                self._copy_in(w, member.numel)
                w.free(w.shared(self._role(member, None), member.register))

    def _add(self, w: BlockWriter, micro: MicroStep) -> None:
        """What a later micro-step reduced is added to what is there (``all_grad_tensors``)."""
        if self.zero.stage == 1 or not micro.later or self.s.compact:
            return
        size = self._held * self.s.model.itemsize
        w.launch(copy("gradients.add", 2 * size, size), MODULE)
        if self.zero.contiguous_gradients:
            w.free(w.shared(ZERO, AGAIN))

    def _left(self, w: BlockWriter, micro: MicroStep) -> Iterator[int]:
        """Gradients that waited until now and are not those of the step."""
        for arrival in self._buckets.arrivals:
            member = arrival.member
            waited = arrival.large or not self.zero.contiguous_gradients
            if not waited or self._goes(member) or self._averaged(member, micro):
                continue
            yield w.shared(self._role(member, None), self._home(member, micro))

    def _averaged(self, member: Member, micro: MicroStep) -> bool:
        """Whether the step takes a gradient where it waits."""
        if self.zero.contiguous_gradients or not self.group.mine(member):
            return False
        return self.zero.stage == 1 or self._home(member, micro).startswith(OWNED)

    # -- step

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """The optimizer's own step clips."""

    def rounds(self) -> Sequence[Round]:
        """One, over the partition."""
        return (
            Round(
                before=Hook(write=self._before_step, roles=everyone(self._units)),
                after=Hook(write=self._after_step, roles=everyone(self._units)),
            ),
        )

    def _before_step(self, w: BlockWriter) -> None:
        slices = [self.group.mine(member) for member in self.group.owned]
        write_norm(w, self.s, slices, self.s.accumulation)
        numel, home = self.group.partition, w.shared(ZERO, HANDED)
        if not self.s.compact:
            write_handed(w, self.s, numel, home, flattens=len(slices) > 1)
            w.free_all(self._reduced(w))
        write_unscaled(w, self.s, numel)

    def _reduced(self, w: BlockWriter) -> Iterator[int]:
        if self.zero.contiguous_gradients:
            yield w.shared(ZERO, PARTITION)
            return
        for member in self.group.owned:
            first = f"{OWNED}.{member.name}" if self.zero.stage == 2 else member.register
            yield w.shared(self._role(member, None), first)

    def _after_step(self, w: BlockWriter) -> None:
        w.free(w.shared(ZERO, PARTITION if self.s.compact else HANDED))
        write_new_weights(w, self.s, self.group.partition, self.group.numel)

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """The step has dropped them."""
