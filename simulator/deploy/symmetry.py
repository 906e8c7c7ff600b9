"""Turns of nodes that change nothing: what they map onto each other need be looked at once.

A turn moves each rank some ranks on within its block of consecutive ranks, and the last ones to
the front. Where cluster, programs and groups are the same afterwards, ranks, groups and links that
are mapped onto each other behave alike, and refinement of one of each finds what refinement of all
would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import lcm, prod
from typing import NamedTuple

from simulator.hardware.cluster import Cluster, Turning
from simulator.plan.mesh import Mesh


class Turn(NamedTuple):
    """``by`` ranks on within every ``block``; all are back after ``order`` times.

    Groups along an axis in ``staying`` are mapped onto themselves, others onto each other.
    """

    block: int
    by: int
    order: int
    staying: frozenset[str]


class Symmetry(NamedTuple):
    """Turns inside each other: the next one moves whole blocks of the one before."""

    turns: tuple[Turn, ...]

    def rank(self, rank: int) -> int:
        """The first of the ranks that are mapped onto each other."""
        for block, by, *_ in reversed(self.turns):
            rank += rank % block % by - rank % block
        return rank

    def first(self, rank: int, axis: str) -> bool:
        """Whether it is the first of those, by the turns that move groups along ``axis``."""
        moving = (turn for turn in self.turns if axis not in turn.staying)
        return all(rank % turn.block < turn.by for turn in moving)

    def times(self, axis: str) -> int:
        """How many ways of turning map groups along ``axis`` onto themselves."""
        return prod(turn.order for turn in self.turns if axis in turn.staying)


NONE = Symmetry(())
"""Every rank, group and link by itself."""


def find_symmetry(
    cluster: Cluster, mesh: Mesh, axes: Iterable[str], kinds: Sequence[int]
) -> Symmetry:
    """The turns that leave little to look at; ``kinds`` tells apart ranks that are not alike."""
    if not isinstance(cluster, Turning):
        return NONE
    least = cluster.turn_nodes * (cluster.devices[-1].local + 1)
    spans = [_span(mesh, axis) for axis in axes]
    blocks = {mesh.world_size, *(extent for _, extent, _ in spans), *(s for *_, s in spans)}
    turns = []
    for block in sorted(blocks):
        turn = _within(block, least, spans)
        if turn is not None and _same(kinds, turn):
            turns.append(turn)
            least = block
    return Symmetry(tuple(turns))


def first_links(cluster: Cluster, symmetry: Symmetry) -> Callable[[int], int]:
    """The first of the links that are mapped onto each other."""
    if not symmetry.turns or not isinstance(cluster, Turning):
        return lambda link: link
    gpus = cluster.devices[-1].local + 1
    return cluster.first_alike([(turn.by // gpus, turn.block // gpus) for turn in symmetry.turns])


def _span(mesh: Mesh, axis: str) -> tuple[str, int, int]:
    """How many consecutive ranks a group lies within, and how far apart its members are."""
    whole, _, part = axis.partition(":")
    size, stride = int(part or mesh.sizes[mesh.axes.index(whole)]), mesh.stride(whole)
    return axis, size * stride, stride


def _within(block: int, least: int, spans: Sequence[tuple[str, int, int]]) -> Turn | None:
    """The smallest turn within blocks that maps groups to groups and keeps their order."""
    by, staying = least, set()
    for axis, extent, stride in spans:
        if extent == block:
            by = lcm(by, stride)
            staying.add(axis)
        elif block % extent == 0:
            by = lcm(by, extent)
        elif stride % block:
            return None
    if block % by or block == by:
        return None
    return Turn(block, by, block // by, frozenset(staying))


def _same(kinds: Sequence[int], turn: Turn) -> bool:
    """Whether ranks are mapped to ranks of their kind."""
    for start in range(0, len(kinds), turn.block):
        block = list(kinds[start : start + turn.block])
        if block != block[turn.by :] + block[: turn.by]:
            return False
    return True
