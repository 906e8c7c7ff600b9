"""Where a group's members sit: in which NVLink domains, beside which NICs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from simulator.hardware.cluster import Cluster

NETWORK_KINDS = frozenset({"nic", "fabric"})
"""Links that lie between domains."""


class Same:
    """A cluster as a key of caches: equal to itself only, and kept alive by them."""

    __slots__ = ("cluster",)

    def __init__(self, cluster: Cluster) -> None:
        """Hold ``cluster``."""
        self.cluster = cluster

    def __hash__(self) -> int:
        """By identity: clusters hold lists."""
        return id(self.cluster)

    def __eq__(self, other: object) -> bool:
        """Whether it is the very same cluster."""
        return isinstance(other, Same) and self.cluster is other.cluster


def domains(members: Sequence[int], cluster: Cluster) -> list[tuple[int, ...]]:
    """The members by domain: devices that reach each other without a NIC.

    A domain is a node, or several where NVLink spans them.
    """
    return list(_domains(tuple(members), Same(cluster)))


@lru_cache(maxsize=16)
def _domains(members: tuple[int, ...], same: Same) -> tuple[tuple[int, ...], ...]:
    devices = same.cluster.devices
    by_node: dict[int, list[int]] = {}
    for member in members:
        by_node.setdefault(devices[member].node, []).append(member)
    found: list[tuple[int, ...]] = []
    for _, group in sorted(by_node.items()):
        node = tuple(sorted(group, key=lambda member: devices[member].local))
        if found and not _apart(devices[found[-1][0]].node, devices[node[0]].node, same):
            found[-1] += node
        else:
            found.append(node)
    return tuple(found)


@lru_cache(maxsize=1 << 14)
def _apart(node: int, other: int, same: Same) -> bool:
    """Whether two nodes are in different domains; asked by many groups."""
    first = _first_devices(same)
    return crosses_network(same.cluster, first[node], first[other])


@lru_cache(maxsize=16)
def _first_devices(same: Same) -> dict[int, int]:
    """By node."""
    return {device.node: index for index, device in reversed([*enumerate(same.cluster.devices)])}


def crosses_network(cluster: Cluster, source: int, target: int) -> bool:
    """Whether traffic from device to device leaves through a NIC."""
    return any(cluster.links[link].kind in NETWORK_KINDS for link in cluster.route(source, target))


def rails(device: int, cluster: Cluster) -> range:
    """The NICs that are nearest to a device: an even split of its node's.

    Eight GPUs with 32 NICs have four each; with four NICs, two GPUs share one.
    """
    place = cluster.devices[device]
    gpus = _gpus_per_node(Same(cluster))[place.node]
    nics = cluster.nics(place.node)
    first = place.local * nics // gpus
    return range(first, max((place.local + 1) * nics // gpus, min(first + 1, nics)))


@lru_cache(maxsize=16)
def _gpus_per_node(same: Same) -> Counter[int]:
    return Counter(device.node for device in same.cluster.devices)
