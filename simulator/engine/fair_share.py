"""Max-min fair rates of concurrent flows by progressive filling, in integers.

All rates rise together; the links that fill first freeze the flows on them; the rest goes on.
All links that fill at one level freeze at once, so the answer depends on no order and flows that
are alike get the same rate, folded into one or not (Bertsekas & Gallager, Data Networks, 6.5.2).
"""

from __future__ import annotations

from collections.abc import Sequence

Weights = Sequence[tuple[int, int]]


def alone(capacities: Sequence[int], weights: Weights) -> int:
    """Rate of a flow that shares its links with nobody.

    >>> alone([100, 30], [(0, 1), (1, 2)])
    15
    """
    return min(capacities[link] // weight for link, weight in weights)


def fair_share(capacities: Sequence[int], flows: Sequence[Weights]) -> list[int]:
    """Rate of each flow; flow i takes ``rate * weight`` on each ``(link, weight)`` of ``flows[i]``.

    Every flow has at least one link; rates round down.

    >>> fair_share([100, 30], [[(0, 1)], [(0, 1), (1, 2)]])
    [85, 15]
    """
    left: dict[int, int] = {}
    load: dict[int, int] = {}
    for weights in flows:
        for link, weight in weights:
            left[link] = capacities[link]
            load[link] = load.get(link, 0) + weight
    rates = [0] * len(flows)
    rising = list(range(len(flows)))
    while rising:
        levels = {link: left[link] // weight for link, weight in load.items() if weight}
        level = min(levels.values())
        full = {link for link, at in levels.items() if at == level}
        still = []
        for flow in rising:
            if full.isdisjoint(link for link, _ in flows[flow]):
                still.append(flow)
                continue
            rates[flow] = level
            for link, weight in flows[flow]:
                left[link] -= level * weight
                load[link] -= weight
        rising = still
    return rates
