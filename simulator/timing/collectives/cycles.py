"""Rings on a mesh: ways round all members that share no link, so that all links work at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from simulator.hardware.cluster import Cluster

Cycle = tuple[int, ...]
"""Positions in the order in which a ring visits them."""

_EIGHT: tuple[Cycle, ...] = (
    (0, 1, 2, 3, 4, 5, 6, 7),
    (0, 2, 1, 3, 5, 4, 7, 6),
    (0, 3, 1, 4, 6, 2, 7, 5),
    (0, 4, 1, 5, 7, 2, 6, 3),
    (0, 5, 3, 6, 1, 7, 4, 2),
    (0, 6, 5, 2, 4, 3, 7, 1),
    (0, 7, 3, 2, 5, 1, 6, 4),
)
"""Seven rings that use each of the 56 directed links between eight members once."""


def cycles(n: int) -> tuple[Cycle, ...]:
    """Rings of n members no two of which send over the same link.

    For 8 and for primes they use every link; else one for each step that has no divisor in
    common with n.

    >>> cycles(3)
    ((0, 1, 2), (0, 2, 1))
    """
    if n == 8:
        return _EIGHT
    steps = (step for step in range(1, max(n, 2)) if gcd(step, n) == 1)
    return tuple(tuple(step * turn % n for turn in range(n)) for step in steps)


def meshed(domain: Sequence[int], cluster: Cluster) -> bool:
    """Whether the first of at least two members has a link of its own to every other."""
    first = domain[0]
    return len(domain) > 1 and all(len(cluster.route(first, other)) == 1 for other in domain[1:])
