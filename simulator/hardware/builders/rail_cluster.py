"""A rail-optimised cluster, in which the number of a link follows from where it is.

Links come in pairs, outwards and back, and in three runs: those inside the nodes, node by node;
NIC to leaf, node by node; leaf to spine, unit by unit and rail by rail. So a route is arithmetic,
whatever the size, and a link is only spelled out when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import lcm

from simulator.hardware.builders.builder import Request
from simulator.hardware.builders.fabric import Fabric
from simulator.hardware.builders.node import Node, NodeShape
from simulator.hardware.builders.wire import Wire
from simulator.hardware.cluster import Device, Link
from simulator.hardware.lazy import Lazy


class RailCluster:
    """``request.nodes`` equal nodes, ``domain_nodes`` of them on one NVSwitch: a Cluster.

    ``fabric`` is None for one node without a network.
    """

    def __init__(
        self, shape: NodeShape, fabric: Fabric | None, request: Request, domain_nodes: int = 1
    ) -> None:
        """Wire one node; the rest is arithmetic."""
        self.name, self.network = request.name, request.network
        self.host_bytes = request.host_bytes
        self.node_count, self._domain_nodes = request.nodes, domain_nodes
        self._node = Node(shape, request.gpus)
        nics = request.nodes * self._node.nics if request.nodes > 1 else 0
        units = uplinks = 0
        if fabric is not None:
            self._fabric = fabric
            units = -(-request.nodes // fabric.unit_nodes)
            uplinks = units * self._node.nics * fabric.spines if units > 1 else 0
        self._nic_links = request.nodes * self._node.links
        self._spine_links = self._nic_links + 2 * nics
        self.links: Sequence[Link] = Lazy(self._spine_links + 2 * uplinks, self._link)
        gpu = replace(request.gpu, host_bytes_per_s=self._node.copies_per_s)
        self.devices: Sequence[Device] = tuple(
            Device(name=f"node{node}/gpu{local}", node=node, local=local, gpu=gpu)
            for node in range(request.nodes)
            for local in range(request.gpus)
        )

    @cached_property
    def capacities(self) -> Sequence[float]:
        """Bytes per second of every link, by number."""
        node = [pair.wire.bytes_per_s for pair in self._node.pairs for _ in ("out", "back")]
        inside = node * self.node_count
        if self.node_count == 1:
            return inside
        nic, uplink = self._fabric.nic.bytes_per_s, self._fabric.uplink.bytes_per_s
        nics = self._spine_links - self._nic_links
        uplinks = len(self.links) - self._spine_links
        return inside + [nic] * nics + [uplink] * uplinks

    def nics(self, node: int) -> int:
        """How many NICs a node has: the same in all."""
        return self._node.nics

    def route(self, source: int, target: int, rail: int | None = None) -> tuple[int, ...]:
        """Indexes into ``links`` from device to device; see Cluster. Raises IndexError."""
        node = self._node
        if not (0 <= source < len(self.devices) and 0 <= target < len(self.devices)):
            raise IndexError(f"no device {source} or {target} of {len(self.devices)}")
        (a, local_a), (b, local_b) = divmod(source, node.gpus), divmod(target, node.gpus)
        base_a, base_b = a * node.links, b * node.links
        if a == b:
            return tuple([base_a + link for link in node.to_gpu[local_a][local_b]])
        if a // self._domain_nodes == b // self._domain_nodes:
            return base_a + node.to_switch(local_a), base_b + node.to_switch(local_b) + 1
        if rail is None:
            rail = node.own_rail[local_a]
        elif not 0 <= rail < node.nics:
            raise IndexError(f"no rail {rail} of {node.nics}")
        return (
            *[base_a + link for link in node.to_nic[local_a][rail]],
            *self._between(a, b, rail),
            *[base_b + link for link in node.from_nic[local_b][rail]],
        )

    def to_host(self, device: int) -> tuple[int, ...]:
        """Indexes into ``links`` from a device to the memory of its host."""
        node, local = divmod(device, self._node.gpus)
        return tuple([node * self._node.links + link for link in self._node.to_host[local]])

    def from_host(self, device: int) -> tuple[int, ...]:
        """Indexes into ``links`` from the memory of its host to a device."""
        return tuple([link ^ 1 for link in reversed(self.to_host(device))])

    @property
    def turn_nodes(self) -> int:
        """Whole NVLink domains, and whole units where there are several."""
        if len(self.links) == self._spine_links:
            return self._domain_nodes
        return lcm(self._domain_nodes, self._fabric.unit_nodes)

    def first_alike(self, turns: Sequence[tuple[int, int]]) -> Callable[[int], int]:
        """See Turning: links of a node turn with it, those of a leaf with its unit."""
        inside, up = self._node.links, 2 * self._node.nics
        nic_links, spine_links = self._nic_links, self._spine_links
        back = [_turned_back(node, turns) - node for node in range(self.node_count)]
        size, uplinks = 1, 1
        if spine_links < len(self.links):
            size, uplinks = self._fabric.unit_nodes, up * self._fabric.spines

        def first(link: int) -> int:
            if link < nic_links:
                return link + inside * back[link // inside]
            if link < spine_links:
                return link + up * back[(link - nic_links) // up]
            return link + uplinks * back[(link - spine_links) // uplinks * size] // size

        return first

    @property
    def bisection_bytes_per_s(self) -> float:
        """From the first half of the nodes to the second.

        In the unit that holds some of both, past the leaves; else over the spines; and over the
        NVSwitch that both are on.
        """
        if self.node_count == 1:
            return 0.0
        return self._over_network() + self._over_switch()

    def _over_switch(self) -> float:
        """What the halves exchange in the domain that holds nodes of both."""
        half, size = self.node_count // 2, self._domain_nodes
        first = half // size * size
        inside = half - first
        outside = min(first + size, self.node_count) - half
        if not inside:
            return 0.0
        wire = self._node.pairs[self._node.to_switch(0) // 2].wire
        return min(inside, outside) * self._node.gpus * wire.bytes_per_s

    def _over_network(self) -> float:
        nic, size = self._fabric.nic.bytes_per_s, self._fabric.unit_nodes
        up = self._fabric.spines * self._fabric.uplink.bytes_per_s
        half = self.node_count // 2
        direct = sent = received = 0.0
        for first in range(0, self.node_count, size):
            last = min(first + size, self.node_count)
            inside = min(max(half - first, 0), last - first)
            outside = last - first - inside
            direct += min(inside, outside) * nic
            sent += min(max(inside - outside, 0) * nic, up)
            received += min(max(outside - inside, 0) * nic, up)
        return self._node.nics * (direct + min(sent, received))

    def _between(self, a: int, b: int, rail: int) -> tuple[int, ...]:
        """From NIC to NIC.

        The target picks the spine, as in the fat-tree routing of InfiniBand (d-mod-k): flows to
        different nodes of a unit spread over the spines.
        """
        nics, size, spines = self._node.nics, self._fabric.unit_nodes, self._fabric.spines
        up = self._nic_links + 2 * (a * nics + rail)
        down = self._nic_links + 2 * (b * nics + rail) + 1
        unit_a, unit_b = a // size, b // size
        if unit_a == unit_b:
            return up, down
        spine = b % size % spines
        leaf_a, leaf_b = unit_a * nics + rail, unit_b * nics + rail
        first = self._spine_links + 2 * (leaf_a * spines + spine)
        second = self._spine_links + 2 * (leaf_b * spines + spine) + 1
        return up, first, second, down

    def _link(self, index: int) -> Link:
        """The link with this number; see the module's docstring."""
        pair, back = divmod(index, 2)
        if index < self._nic_links:
            node, pair = divmod(pair, len(self._node.pairs))
            inner, outer, kind, wire = self._node.pairs[pair]
            return _way(f"node{node}/{inner}", f"{self._at(node, outer)}/{outer}", kind, wire, back)
        if index < self._spine_links:
            node, rail = divmod(pair - self._nic_links // 2, self._node.nics)
            leaf = f"unit{node // self._fabric.unit_nodes}/leaf{rail}"
            return _way(f"node{node}/nic{rail}", leaf, "nic", self._fabric.nic, back)
        leaf_number, spine = divmod(pair - self._spine_links // 2, self._fabric.spines)
        unit, rail = divmod(leaf_number, self._node.nics)
        wire = self._fabric.uplink
        return _way(f"unit{unit}/leaf{rail}", f"spine{spine}", "fabric", wire, back)

    def _at(self, node: int, vertex: str) -> str:
        """Where a node's vertex stands: in the node, or in the domain that shares it."""
        if vertex == "nvswitch" and self._domain_nodes > 1:
            return f"domain{node // self._domain_nodes}"
        return f"node{node}"


def _turned_back(node: int, turns: Sequence[tuple[int, int]]) -> int:
    """The first of the nodes that ``turns`` map onto each other."""
    for by, block in reversed(turns):
        node += node % block % by - node % block
    return node


def _way(inner: str, outer: str, kind: str, wire: Wire, back: int) -> Link:
    """Outwards, or ``back``."""
    return Link(
        source=outer if back else inner,
        target=inner if back else outer,
        kind=kind,
        bytes_per_s=wire.bytes_per_s,
        latency_s=wire.latency_s,
    )
