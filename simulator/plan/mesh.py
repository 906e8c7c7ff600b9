"""The device mesh: which ranks share a group along each axis.

Axis order is torchtitan's ``[pp, dp_replicate, dp_shard, cp, tp]``, last axis fastest, so that tp
neighbours are neighbours on the node (torchtitan ``distributed/parallel_dims.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.plan.plan import Parallelism

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Sizes of the axes, outermost first."""

    sizes: tuple[int, ...]
    axes: tuple[str, ...] = AXES

    @property
    def world_size(self) -> int:
        """Ranks in the mesh."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    def stride(self, axis: str) -> int:
        """Distance in ranks between neighbours along ``axis``."""
        stride = 1
        for size in self.sizes[self.axes.index(axis) + 1 :]:
            stride *= size
        return stride

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """The ranks of ``rank``'s group along ``axis``, in group order.

        ``axis:n`` is the part of it with ``n`` ranks: consecutive ones, from a multiple of n.

        >>> Mesh(sizes=(1, 2, 4, 1, 1)).group("dp_replicate", 5)
        (1, 5)
        >>> Mesh(sizes=(1, 2, 4, 1, 1)).group("dp_shard:2", 7)
        (6, 7)
        """
        if ":" in axis:
            whole, _, size_text = axis.partition(":")
            ranks, part = self.group(whole, rank), int(size_text)
            start = ranks.index(rank) // part * part
            return ranks[start : start + part]
        size, stride = self.sizes[self.axes.index(axis)], self.stride(axis)
        first = rank - (rank // stride % size) * stride
        return tuple(range(first, first + size * stride, stride))


def mesh_of(parallelism: Parallelism) -> Mesh:
    """The mesh that a plan's axis sizes make."""
    return Mesh(sizes=tuple(getattr(parallelism, axis) for axis in AXES))
