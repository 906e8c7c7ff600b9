"""All_to_all as NCCL runs it: a grouped send and receive of every pair at once, no relay.

Source: ``ncclAlltoAll`` and PyTorch's ``all2all_single_equal_split`` (torch/csrc/cuda/nccl.cpp):
one group of n sends and n receives. Between nodes a pair takes the sender's own rail.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations

from simulator.hardware.cluster import Cluster
from simulator.timing.collectives.algorithm import Channel, Members, Transfer
from simulator.timing.collectives.latency import direct_latency, direct_reach
from simulator.timing.collectives.pattern import Pattern
from simulator.timing.collectives.placement import Same, domains, rails


class Direct:
    """Everyone sends everyone its own part: all_to_all."""

    def applies(self, kind: str, members: Members, cluster: Cluster) -> bool:
        """Any group, for all_to_all."""
        return kind == "all_to_all"

    def steps(self, kind: str, n: int) -> Iterator[list[Transfer]]:
        """One step, of what each holds for each other.

        >>> list(Direct().steps("all_to_all", 2))[0][1]
        Transfer(source=1, target=0, chunk=2, reduce=False)
        """
        yield [Transfer(p, q, p * n + q, False) for p, q in permutations(range(n), 2)]

    def channels(self, members: Members, cluster: Cluster) -> list[Channel]:
        """One copy a NIC that every member has beside it."""
        order, lanes = tuple(sorted(members)), _lanes(members, cluster)
        return [Channel(order, None, 1 / lanes, lane) for lane in range(lanes)]

    def pattern(self, kind: str, members: Members, cluster: Cluster) -> Pattern:
        """A pair loads its links with 1/n of S."""
        n = len(members)
        over = {
            kind: 1 / reached
            for kind, reached in direct_reach(cluster.devices[members[0]].gpu.family).items()
        }
        alpha, c = direct_latency(domains(members, cluster), cluster) if n > 1 else (0.0, 0.0)
        return Pattern(
            algorithm="direct",
            kind=kind,
            alpha_s=alpha,
            c_s=c,
            factor=(n - 1) / n,
            loads=_loads(tuple(sorted(members)), Same(cluster), tuple(over.items())),
            over=over,
        )


def _lanes(members: Members, cluster: Cluster) -> int:
    """How many NICs every member can send over at once."""
    return max(1, min(len(rails(member, cluster)) for member in members))


@lru_cache(maxsize=8)
def _loads(members: Members, same: Same, over: tuple[tuple[str, float], ...]) -> dict[int, float]:
    """Bytes on each link per byte of S; counted as integers: alike is exactly alike."""
    cluster, factors = same.cluster, dict(over)
    lanes = _lanes(members, cluster)
    links, pairs_on = cluster.links, [0] * len(cluster.links)
    for source in members:
        beside = rails(source, cluster)
        for rail in beside[:lanes] or (None,):
            for target in members:
                if target != source:
                    for link in cluster.route(source, target, rail):
                        pairs_on[link] += 1
    whole = len(members) * lanes
    return {
        link: pairs / whole * factors.get(links[link].kind, 1.0)
        for link, pairs in enumerate(pairs_on)
        if pairs
    }
