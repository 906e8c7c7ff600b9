"""Ring all_gather, reduce_scatter and all_reduce: every position sends to the next, n - 1 times.

The ring goes through one domain after the other. As many rings run side by side as the group has
NICs in a node, each over a rail of its own: it enters a domain at a GPU beside that NIC, goes
round, and the GPU before it sends on over the same rail. Inside one domain one ring is enough:
what links reach is in their capacity. On a mesh, several go round each domain by different links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator.hardware.cluster import Cluster
from simulator.timing.collectives.algorithm import Channel, Members, Transfer
from simulator.timing.collectives.cycles import cycles, meshed
from simulator.timing.collectives.latency import ring_latency
from simulator.timing.collectives.pattern import Pattern
from simulator.timing.collectives.placement import Same, domains, rails

Nic = tuple[int, int]
"""A node of a domain, and a rail."""

PASSES = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}


class Ring:
    """NCCL's ring, with one channel a rail."""

    def applies(self, kind: str, members: Members, cluster: Cluster) -> bool:
        """Any group, for the three kinds."""
        return kind in PASSES

    def steps(self, kind: str, n: int) -> Iterator[list[Transfer]]:
        """A chunk's sum ends where the chunk belongs; then it goes round once more.

        >>> list(Ring().steps("all_gather", 2))[0][0]
        Transfer(source=0, target=1, chunk=0, reduce=False)
        """
        if kind in ("reduce_scatter", "all_reduce"):
            for step in range(1, n):
                yield [Transfer(p, (p + 1) % n, (p - step) % n, True) for p in range(n)]
        if kind in ("all_gather", "all_reduce"):
            for step in range(n - 1):
                yield [Transfer(p, (p + 1) % n, (p - step) % n, False) for p in range(n)]

    def channels(self, members: Members, cluster: Cluster) -> list[Channel]:
        """One ring a rail that the group has in every domain; one in all inside a domain."""
        return _channels(domains(members, cluster), cluster)

    def pattern(self, kind: str, members: Members, cluster: Cluster) -> Pattern:
        """Each link carries f = passes·(n-1)/n of S for every ring that uses it, by its share."""
        n = len(members)
        found = domains(members, cluster)
        factor = PASSES[kind] * (n - 1) / n
        alpha, c = ring_latency(kind, found, cluster) if n > 1 else (0.0, 0.0)
        return Pattern(
            algorithm="ring",
            kind=kind,
            alpha_s=alpha,
            c_s=c,
            factor=factor,
            loads=_loads(members, Same(cluster), factor) if n > 1 else {},
        )


class _Turn(NamedTuple):
    """How the rings go round one domain: ``ways`` of its members, and where each NIC enters."""

    ways: Sequence[Members]
    starts: Mapping[Nic | None, int]

    def way(self, copy: int, nic: Nic | None) -> Members:
        """The members from the one that ``nic`` enters at to the one that it leaves from."""
        way = self.ways[copy % len(self.ways)]
        at = way.index(self.starts[nic])
        return way[at:] + way[:at]


def _turns(found: Sequence[Members], cluster: Cluster) -> list[_Turn]:
    """By domain; all have the same rails, or None where there is none to share."""
    beside = [_beside(domain, cluster) for domain in found]
    shared = sorted(set.intersection(*(set(nics) for nics in beside))) if len(found) > 1 else []
    return [
        _Turn(_ways(domain, cluster), {nic: at[nic] for nic in shared} or {None: domain[0]})
        for domain, at in zip(found, beside, strict=True)
    ]


def _channels(found: Sequence[Members], cluster: Cluster) -> list[Channel]:
    turns = _turns(found, cluster)
    copies = max(len(turn.ways) for turn in turns)
    share = 1 / (len(turns[0].starts) * copies)
    return [
        Channel(
            tuple(member for turn in turns for member in turn.way(copy, nic)),
            None if nic is None else nic[1],
            share,
        )
        for nic in turns[0].starts
        for copy in range(copies)
    ]


def _ways(domain: Members, cluster: Cluster) -> list[Members]:
    """How rings go round a domain."""
    if not meshed(domain, cluster):
        return [domain]
    return [tuple(domain[position] for position in way) for way in cycles(len(domain))]


def _beside(domain: Members, cluster: Cluster) -> dict[Nic, int]:
    """The last member of ``domain`` beside each NIC."""
    nodes = sorted({cluster.devices[member].node for member in domain})
    ranks = {node: rank for rank, node in enumerate(nodes)}
    return {
        (ranks[cluster.devices[member].node], rail): member
        for member in domain
        for rail in rails(member, cluster)
    }


@lru_cache(maxsize=8)
def _loads(members: Members, same: Same, factor: float) -> dict[int, float]:
    """Bytes on each link per byte of S; one object for all kinds that load alike.

    Rings are counted as integers, so that links which carry alike carry exactly alike.
    """
    rings, rings_on = _rings(members, same)
    return {link: factor * count / rings for link, count in rings_on.items()}


@lru_cache(maxsize=8)
def _rings(members: Members, same: Same) -> tuple[int, dict[int, int]]:
    """How many rings there are, and how many use each link."""
    turns = _turns(domains(members, same.cluster), same.cluster)
    copies = max(len(turn.ways) for turn in turns)
    route, rings_on = same.cluster.route, dict[int, int]()
    for (source, target, rail), rings in _hops(turns, copies).items():
        for link in route(source, target, rail):
            rings_on[link] = rings_on.get(link, 0) + rings
    return len(turns[0].starts) * copies, rings_on


def _hops(turns: Sequence[_Turn], copies: int) -> dict[tuple[int, int, int | None], int]:
    """How many rings go from device to device, over which rail.

    In each domain all go all the way round, but each leaves out the hop to where it entered.
    """
    entries = list(turns[0].starts)
    hops: Counter[tuple[int, int, int | None]] = Counter()
    for copy in range(copies):
        for turn, after in zip(turns, [*turns[1:], turns[0]], strict=True):
            way = turn.ways[copy % len(turn.ways)]
            before = dict(zip(way, way[-1:] + way[:-1], strict=True))
            for member, previous in before.items():
                hops[previous, member, None] += len(entries)
            for nic in entries if len(turns) > 1 else ():
                start = turn.starts[nic]
                hops[before[start], start, None] -= 1
                hops[before[start], after.starts[nic], None if nic is None else nic[1]] += 1
    return {hop: rings for hop, rings in hops.items() if rings and hop[0] != hop[1]}
