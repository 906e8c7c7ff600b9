"""What the engine plays: classes of ranks, their groups, and the traffic of each collective.

Link weights and capacities are integers so that folded and unfolded runs are identical: a flow
of rate r bytes of message a second takes ``r * weight`` of ``capacity`` on each of its links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.hardware.gpu import Gpu
from simulator.program.program import Program

SCALE = 1 << 32
"""Weights and capacities are multiples of 1/SCALE of a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """Ranks that must behave alike. ``groups[axis]`` indexes ``Deployment.groups``."""

    index: int
    program: Program
    gpu: Gpu
    ranks: tuple[int, ...]
    groups: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One collective of one group: a latency in ns, then a flow on weighted link classes.

    ``weights`` are (link class, weight) pairs: bytes that cross a link of that class per byte of
    the message, times SCALE, summed over the groups that are folded into one.
    """

    latency_ns: int
    weights: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClass:
    """Groups along one axis that must behave alike.

    ``members`` are the rank classes that a collective waits for; ``traffic[kind, bytes]`` says
    what each collective that the members' programs issue puts on the links.
    """

    index: int
    axis: str
    members: tuple[int, ...]
    traffic: Mapping[tuple[str, int], Traffic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Programs on devices. ``capacities[l]`` is link class l's, in bytes/s times SCALE."""

    classes: tuple[RankClass, ...]
    groups: tuple[GroupClass, ...]
    capacities: tuple[int, ...]
    class_of_rank: tuple[int, ...]
