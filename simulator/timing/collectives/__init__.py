"""How collectives use the network. One file an algorithm; a new one joins ``ALGORITHMS``.

To add one, write a class with the methods of ``algorithm.Algorithm`` in a file of its own and
give it a line below. The judge in ``tests/judges/test_collectives.py`` then tries it as it
tries the others, and ``choose`` takes it wherever it is the fastest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from simulator.errors import ProgramError
from simulator.hardware.cluster import Cluster
from simulator.timing.collectives.algorithm import Algorithm, Channel, Members, Transfer
from simulator.timing.collectives.direct import Direct
from simulator.timing.collectives.mesh import Mesh
from simulator.timing.collectives.pattern import Pattern, cost
from simulator.timing.collectives.placement import Same
from simulator.timing.collectives.ring import Ring

__all__ = ["ALGORITHMS", "Algorithm", "Channel", "Members", "Pattern", "Transfer", "choose", "cost"]

ALGORITHMS: Mapping[str, Algorithm] = {
    "ring": Ring(),
    "mesh": Mesh(),
    "direct": Direct(),
}


def choose(kind: str, size: int, members: Members, cluster: Cluster) -> Pattern:
    """The pattern of the algorithm that carries ``size`` bytes fastest, alone on its links.

    Patterns are kept by (kind, members, cluster), so that asking again for another size is cheap.
    """
    same = Same(cluster)
    patterns = [
        _pattern(name, kind, members, same)
        for name, algorithm in ALGORITHMS.items()
        if algorithm.applies(kind, members, cluster)
    ]
    if not patterns:
        raise ProgramError(f"no algorithm carries out a {kind!r} of {len(members)} ranks")
    if len(patterns) == 1:
        return patterns[0]
    return min(patterns, key=lambda pattern: cost(pattern, size, cluster))


@lru_cache(maxsize=512)
def _pattern(name: str, kind: str, members: Members, same: Same) -> Pattern:
    return ALGORITHMS[name].pattern(kind, members, same.cluster)
