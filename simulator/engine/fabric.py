"""The links of the cluster and the flows on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.engine.fair_share import alone, fair_share
from simulator.engine.transfer import Transfer


class Fabric:
    """Grants every flow its max-min fair share, solved anew for whom a change touches."""

    def __init__(self, capacities: Sequence[int]) -> None:
        """``capacities`` by link class, as in ``Deployment``."""
        self._capacities = capacities
        self._users: list[dict[Transfer, None]] = [{} for _ in capacities]

    def add(self, transfer: Transfer) -> None:
        """A flow begins."""
        for link, _ in transfer.traffic.weights:
            self._users[link][transfer] = None
        self._share([transfer])

    def remove(self, transfer: Transfer) -> None:
        """A flow has ended: its neighbours get what it held."""
        neighbours: dict[Transfer, None] = {}
        for link, _ in transfer.traffic.weights:
            del self._users[link][transfer]
            neighbours |= self._users[link]
        if neighbours:
            self._share(neighbours)

    def _share(self, start: Iterable[Transfer]) -> None:
        flows = self._connected(start)
        weights = [flow.traffic.weights for flow in flows]
        if len(flows) == 1:
            shares = [alone(self._capacities, weights[0])]
        else:
            shares = fair_share(self._capacities, weights)
        for flow, share in zip(flows, shares, strict=True):
            flow.set_share(max(1, share))

    def _connected(self, start: Iterable[Transfer]) -> list[Transfer]:
        """The flows that share a link with one of ``start``, or with one that does, and so on."""
        found = dict.fromkeys(start)
        reach = list(found)
        for flow in reach:
            for link, _ in flow.traffic.weights:
                for user in self._users[link]:
                    if user not in found:
                        found[user] = None
                        reach.append(user)
        return reach
