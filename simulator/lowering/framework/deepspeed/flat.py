"""The flat group: a model's trained weights end to end, cut into one partition a rank.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19), ``DeepSpeedZeroOptimizer.__init__``,
``initialize_gradient_partition``. The partition here is rank 0's; the others' are as large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.lowering.units import Unit

ALIGNMENT = 2
"""Elements by which each partition is aligned (``nccl_start_alignment_factor``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One weight in the group."""

    unit: int
    name: str
    module: str
    numel: int
    offset: int

    @property
    def register(self) -> str:
        """The register of its gradient, in its unit."""
        return f"gradient.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatGroup:
    """``numel``: elements of the flat buffer, padded to a multiple of the ranks."""

    members: tuple[Member, ...]
    numel: int
    ranks: int

    @property
    def partition(self) -> int:
        """Elements of one rank's partition."""
        return self.numel // self.ranks

    def mine(self, member: Member) -> int:
        """Elements of a weight that lie in rank 0's partition."""
        return max(0, min(member.numel, self.partition - member.offset))

    @property
    def owned(self) -> tuple[Member, ...]:
        """Weights of which any part lies in rank 0's partition."""
        return tuple(member for member in self.members if self.mine(member))

    def spans(self, member: Member) -> Iterator[tuple[int, int]]:
        """The ranks among whose partitions a weight is cut, each with its elements."""
        at, end = member.offset, member.offset + member.numel
        while at < end:
            rank = at // self.partition
            stop = min(end, (rank + 1) * self.partition)
            yield rank, stop - at
            at = stop


def group_of(units: Sequence[Unit], ranks: int, *, round_robin: bool = False) -> FlatGroup:
    """The group of all trained weights, in registration order.

    ``round_robin``: weight i goes to the i-th rank, by turns (``_round_robin_reorder``).
    """
    found = [
        (index, weight)
        for index, unit in enumerate(units)
        for weight in unit.kind.graph.trained
        if not weight.tied
    ]
    if round_robin:
        found = [pair for rank in range(ranks) for pair in found[rank::ranks]]
    members: list[Member] = []
    end = 0
    for index, weight in found:
        members.append(
            Member(
                unit=index,
                name=weight.name,
                module=weight.module,
                numel=weight.numel,
                offset=end,
            )
        )
        end += weight.numel
    step = ALIGNMENT * ranks
    return FlatGroup(members=tuple(members), numel=-(-end // step) * step, ranks=ranks)
