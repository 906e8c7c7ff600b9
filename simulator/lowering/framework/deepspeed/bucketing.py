"""Which gradients are reduced together, and when: the bucket of ZeRO-1 and 2.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19),
``reduce_independent_p_g_buckets_and_remove_grads``, ``average_tensor``, ``allreduce_and_scatter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from simulator.lowering.framework.deepspeed.flat import FlatGroup, Member
from simulator.plan.zero import Zero

Key = tuple[int, str]
"""A weight: its unit and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What is reduced in one call. ``copied``: several slices are first put end to end."""

    numel: int
    copied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """``members`` of one bucket, in order; ``large``: the one is larger than the bucket."""

    members: tuple[Member, ...]
    chunks: tuple[Chunk, ...]
    large: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A gradient that joins the bucket; ``before`` is reduced first, if there is no room.

    ``number``: how many came before it. ``large``: it stays where it is.
    """

    number: int
    member: Member
    before: Reduction | None
    large: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Every gradient of a backward in order, and what is left for its end."""

    arrivals: tuple[Arrival, ...]
    rest: Reduction


def bucketed(order: Iterable[Member], group: FlatGroup, zero: Zero, *, compact: bool) -> Buckets:
    """The buckets of gradients that come in this order."""
    size = zero.reduce_bucket_size
    found: list[Arrival] = []
    held: list[Member] = []
    elements = 0
    for number, member in enumerate(order):
        before = None
        if elements + member.numel > size and held:
            before = _reduction(held, group, zero, compact=compact)
            held, elements = [], 0
        found.append(
            Arrival(number=number, member=member, before=before, large=member.numel > size)
        )
        held.append(member)
        elements += member.numel
    rest = _reduction(held, group, zero, compact=compact)
    return Buckets(arrivals=tuple(found), rest=rest)


def _reduction(
    members: Sequence[Member], group: FlatGroup, zero: Zero, *, compact: bool
) -> Reduction:
    total = sum(member.numel for member in members)
    if not zero.contiguous_gradients:
        chunks = [Chunk(numel=total, copied=len(members) > 1)]
    elif not zero.reduce_scatter:
        chunks = [Chunk(numel=total, copied=False)]
    else:
        slices = _slices(members, group, compact=compact)
        chunks = list(_chunks(slices, zero.reduce_bucket_size))
    return Reduction(
        members=tuple(members),
        chunks=tuple(chunks),
        large=members[0].numel > zero.reduce_bucket_size,
    )


def _slices(members: Iterable[Member], group: FlatGroup, *, compact: bool) -> list[int]:
    """Elements of each run of one rank; rank 0's own stay apart where they are added up in fp32."""
    found: list[int] = []
    last = -1
    for member in members:
        for rank, numel in group.spans(member):
            if rank == last and not (compact and rank == 0):
                found[-1] += numel
            else:
                found.append(numel)
            last = rank
    return found


def _chunks(slices: Iterable[int], most: int) -> Iterator[Chunk]:
    total = count = 0
    for numel in slices:
        total, count = total + numel, count + 1
        if total > most:
            yield Chunk(numel=total, copied=count > 1)
            total = count = 0
    if count:
        yield Chunk(numel=total, copied=count > 1)
