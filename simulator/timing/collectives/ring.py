"""Ring all_gather, reduce_scatter and all_reduce: every position sends to the next, n - 1 times.

The ring goes through one domain after the other. As many rings run side by side as the group has
NICs in a node, each over a rail of its own: it enters a domain at a GPU beside that NIC, goes
round, and the GPU before it sends on over the same rail. Inside one domain one ring is enough:
what links reach is in their capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from simulator.hardware.cluster import Cluster
from simulator.timing.collectives.algorithm import Channel, Members, Transfer
from simulator.timing.collectives.latency import ring_latency
from simulator.timing.collectives.pattern import Pattern
from simulator.timing.collectives.placement import domains, rails

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
            loads=_loads(found, _channels(found, cluster), factor, cluster) if n > 1 else {},
        )


def _channels(found: Sequence[Members], cluster: Cluster) -> list[Channel]:
    beside = [_beside(domain, cluster) for domain in found]
    shared = sorted(set.intersection(*(set(nics) for nics in beside))) if len(found) > 1 else []
    if not shared:
        return [Channel(tuple(member for domain in found for member in domain), None, 1.0)]
    channels = []
    for nic in shared:
        starts = (at[nic] for at in beside)
        turned = (domain[at:] + domain[:at] for domain, at in zip(found, starts, strict=True))
        order = tuple(member for domain in turned for member in domain)
        channels.append(Channel(order, nic[1], 1 / len(shared)))
    return channels


def _beside(domain: Members, cluster: Cluster) -> dict[tuple[int, int], int]:
    """Position in ``domain`` of the last GPU beside each NIC: (node of the domain, rail)."""
    nodes = sorted({cluster.devices[member].node for member in domain})
    ranks = {node: rank for rank, node in enumerate(nodes)}
    return {
        (ranks[cluster.devices[member].node], rail): position
        for position, member in enumerate(domain)
        for rail in rails(member, cluster)
    }


def _loads(
    found: Sequence[Members], channels: Sequence[Channel], factor: float, cluster: Cluster
) -> dict[int, float]:
    """Bytes on each link per byte of S: each distinct hop is routed once.

    Rings are counted as integers, so that links which carry alike carry exactly alike.
    """
    home = {member: index for index, domain in enumerate(found) for member in domain}
    hops: Counter[tuple[int, int, int | None]] = Counter()
    for order, rail, _ in channels:
        hops.update(
            (a, b, None if home[a] == home[b] else rail)
            for a, b in zip(order, order[1:] + order[:1], strict=True)
        )
    rings_on: Counter[int] = Counter()
    for (source, target, rail), rings in hops.items():
        for link in cluster.route(source, target, rail):
            rings_on[link] += rings
    return {link: factor * rings / len(channels) for link, rings in rings_on.items()}
