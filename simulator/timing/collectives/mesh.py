"""All_gather, reduce_scatter and all_reduce on a mesh: everyone sends to everyone at once.

Each link carries what its two ends have for each other, so a collective takes one step a pass
and all links work together: with n members n - 1 times what one link reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import sqrt

from simulator.hardware.cluster import Cluster
from simulator.timing.collectives.algorithm import Channel, Members, Transfer
from simulator.timing.collectives.cycles import meshed
from simulator.timing.collectives.latency import domain_latency
from simulator.timing.collectives.pattern import Pattern
from simulator.timing.collectives.placement import domains
from simulator.timing.collectives.ring import PASSES


class Mesh:
    """Direct exchange, where every two members have a link of their own (xGMI, a bridge)."""

    def applies(self, kind: str, members: Members, cluster: Cluster) -> bool:
        """Two members or more of one mesh, for the three kinds."""
        if kind not in PASSES or len(members) < 2:
            return False
        found = domains(members, cluster)
        return len(found) == 1 and meshed(found[0], cluster)

    def steps(self, kind: str, n: int) -> Iterator[list[Transfer]]:
        """Each chunk to its owner, who adds them up; then to all others."""
        pairs = list(permutations(range(n), 2))
        if kind in ("reduce_scatter", "all_reduce"):
            yield [Transfer(p, q, q, True) for p, q in pairs]
        if kind in ("all_gather", "all_reduce"):
            yield [Transfer(p, q, p, False) for p, q in pairs]

    def channels(self, members: Members, cluster: Cluster) -> list[Channel]:
        """One copy of the schedule."""
        return [Channel(tuple(sorted(members)), None, 1.0)]

    def pattern(self, kind: str, members: Members, cluster: Cluster) -> Pattern:
        """Each link carries passes/n of S; the pipeline has one step where a ring has n - 1."""
        n, passes = len(members), PASSES[kind]
        alpha, c = domain_latency(kind, members, cluster)
        links = (link for pair in permutations(members, 2) for link in cluster.route(*pair))
        return Pattern(
            algorithm="mesh",
            kind=kind,
            alpha_s=alpha,
            c_s=c / sqrt(n - 1),
            factor=passes * (n - 1) / n,
            loads=dict.fromkeys(sorted(links), passes / n),
        )
