"""DDP: whole parameters, gradients copied into buckets that are all-reduced as they fill.

Source: torch/csrc/distributed/c10d/reducer.cpp, torch/nn/parallel/distributed.py (2.13). The first
backward that is reduced has one bucket of all; the next forward makes new ones, of the gradients in
the order in which they came: the first closes at 1 MiB, the others at ``bucket_cap``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from simulator.errors import UnsupportedError
from simulator.lowering.framework.arrivals import Arrival, arrivals
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.hooks import (
    Backward,
    Gradients,
    Hook,
    leave,
    leave_all,
    no_gradients,
)
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.framework.single import Single, gradients_of, keep
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import BUCKET_CAP, Plan
from simulator.program.instructions import Category, Collective, Stream

FIRST_BUCKET = 2**20
"""``dist._DEFAULT_FIRST_BUCKET_BYTES``, where the cap is the default."""

BUCKETS = "buckets"
"""Role and label of the buckets' registers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are reduced together; ``members`` in the order in which they come."""

    name: str
    numel: int
    members: tuple[tuple[int, str], ...]


class Ddp(Single):
    """``DistributedDataParallel``; as without a framework, but for the buckets."""

    resident = frozenset({"shard", "bucket"})

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        if plan.parallelism.dp_shard > 1:
            raise UnsupportedError("framework 'ddp' shards nothing: use dp_replicate")
        self.plan, self._units = plan, units
        self._ranks, self._option = plan.parallelism.dp_replicate, plan.parallelism.ddp
        self._dtype = plan.training.trained_precision.gradients
        order, size = arrivals(units), self._dtype.itemsize
        cap = self._option.bucket_cap
        first = FIRST_BUCKET if cap == BUCKET_CAP else cap
        self._first = _buckets("first", order, (sum(n for *_, n in order) * size,), size)
        self._rebuilt = _buckets("bucket", order, (first, cap), size)
        self._current, self._reduced = self._first, False

    def start(self) -> Hook:
        """The reducer's first bucket."""
        write = partial(self._alloc, buckets=self._first)
        return Hook(write=write, roles={BUCKETS: BUCKETS})

    def _alloc(self, w: BlockWriter, buckets: Sequence[Bucket]) -> None:
        """With views the buckets are the gradients; else they are copied in and out."""
        views = self._option.gradient_as_bucket_view
        category = Category.GRADIENTS if views else Category.REDUCE_SCATTER
        for bucket in buckets:
            tensor = flat(bucket.name, bucket.numel, self._dtype, category, "optimizer")
            w.alloc(tensor, slot=w.shared(BUCKETS, bucket.name))

    def begin_forward(self, micro: MicroStep, step: int) -> Hook:
        """``_rebuild_buckets``, once."""
        if not self._reduced or self._current is self._rebuilt:
            return Hook()
        self._current = self._rebuilt
        return Hook(write=self._rebuild, key=("rebuild",), roles={BUCKETS: BUCKETS})

    def _rebuild(self, w: BlockWriter) -> None:
        w.free_all(w.shared(BUCKETS, bucket.name) for bucket in self._first)
        self._alloc(w, self._rebuilt)

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """The hook behind each gradient copies it into its bucket; a full one is reduced."""
        kind, views = self._units[unit].kind, self._option.gradient_as_bucket_view
        homes = {
            name: bucket
            for bucket in self._current
            for index, name in bucket.members
            if index == unit
        }
        full = {b.members[-1][1]: b for b in homes.values() if b.members[-1][0] == unit}
        existing: Callable[[BlockWriter], Gradients] = no_gradients
        if views and micro.summed:  # a reduction before this left views
            existing = partial(_views, homes=homes)
        elif micro.later:
            existing = partial(gradients_of, kind=kind)
        hook = partial(self._accumulated, kind=kind, full=full, moves=views and not micro.summed)
        stay = not micro.later and not (views and micro.reduce)
        return Backward(
            existing=existing,
            accumulated=hook if micro.reduce else leave,
            after=keep if stay else leave_all,
            key=("buckets", *((name, b.name) for name, b in homes.items()), *full, micro),
            roles={BUCKETS: BUCKETS},
        )

    def _accumulated(
        self,
        w: BlockWriter,
        name: str,
        slot: int,
        kind: Kind,
        full: Mapping[str, Bucket],
        *,
        moves: bool,
    ) -> None:
        """``mark_variable_ready``: scale it into the bucket; a view takes the gradient's place."""
        weight = next(weight for weight in kind.graph.weights if weight.name == name)
        size = weight.numel * self._dtype.itemsize
        w.launch(copy(f"{name}.grad.to_bucket", size, size), weight.module)
        if moves:
            w.free(slot)
        if name in full and self._ranks > 1:
            w.wait_stream((Stream.ALL_REDUCE,), Stream.COMPUTE)
            w.collective(self._all_reduce(full[name]))

    def _all_reduce(self, bucket: Bucket) -> Collective:
        return Collective(
            kind="all_reduce",
            bytes=bucket.numel * self._dtype.itemsize,
            group="dp_replicate",
            stream=Stream.ALL_REDUCE,
            name=f"all_reduce {bucket.name}",
            module="optimizer",
        )

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """``finalize_backward``: wait for the reductions, and copy gradients back."""
        if not micro.reduce:
            return Hook()
        self._reduced = True
        return Hook(write=self._finalize, key=("finalize",))

    def _finalize(self, w: BlockWriter) -> None:
        if self._ranks > 1:
            w.wait_stream((Stream.COMPUTE,), Stream.ALL_REDUCE)
        if not self._option.gradient_as_bucket_view:
            size = sum(bucket.numel for bucket in self._current) * self._dtype.itemsize
            w.launch(copy("bucket.to_gradients", size, size), "optimizer")

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """Gradients go; views of buckets hold nothing."""
        if not self._option.gradient_as_bucket_view:
            super().zero_grad(w, kind)


def _views(w: BlockWriter, homes: Mapping[str, Bucket]) -> Gradients:
    """Gradients that are views of buckets, by weight name."""
    return {name: w.shared(BUCKETS, bucket.name) for name, bucket in homes.items()}


def _buckets(
    word: str, order: Sequence[Arrival], limits: Sequence[int], itemsize: int
) -> list[Bucket]:
    """``compute_bucket_assignment_by_size``: one closes when it holds at least its limit."""
    buckets: list[Bucket] = []
    members: list[tuple[int, str]] = []
    numel = 0
    for position, (index, name, size) in enumerate(order):
        members.append((index, name))
        numel += size
        limit = limits[min(len(buckets), len(limits) - 1)]
        if numel * itemsize >= limit or position == len(order) - 1:
            number = f"{word}.{len(buckets)}"
            buckets.append(Bucket(name=number, numel=numel, members=tuple(members)))
            members, numel = [], 0
    return buckets
