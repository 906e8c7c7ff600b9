"""The cluster as a graph: GPUs, switches, host memory and NICs as vertices, directed links between.

The graph is wrapped here once; nothing outside ``hardware/`` sees networkx or attribute dicts.
A vertex is its name: ``node3/gpu5``, ``node3/nvswitch`` (``domain0/nvswitch`` where nodes share
it), ``node3/pcie2``, ``node3/cpu0``, ``node3/host`` (its memory), ``node3/nic5``, ``unit0/leaf5``,
``spine7``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from simulator.hardware.gpu import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a connection between two vertices.

    ``bytes_per_s`` is what large transfers reach (line rate times the link kind's efficiency),
    ``latency_s`` one hop's delay. ``kind``: ``nvlink``, ``xgmi`` (between two GPUs), ``pcie``,
    ``c2c`` (GPU to its CPU), ``memory`` (CPU to its DRAM), ``nic`` (NIC to leaf) or ``fabric``
    (between switches).
    """

    source: str
    target: str
    kind: str
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU in its place; ``name`` is ``node3/gpu5``."""

    name: str
    node: int
    local: int
    gpu: Gpu


class Cluster(Protocol):
    """What the rest of dryfit asks of a topology.

    Devices are numbered node by node. ``host_bytes`` is the memory of one node's host, 0 where
    the topology doesn't say; ``bisection_bytes_per_s`` what the first half of the nodes can send
    to the second half, 0 for one node.
    """

    @property
    def name(self) -> str:
        """The topology and how many nodes of it."""
        ...

    @property
    def network(self) -> str:
        """Kind of the network between nodes: ``ib-ndr``, ``ib-hdr``, ``roce``, ... or ``none``."""
        ...

    @property
    def devices(self) -> Sequence[Device]:
        """The GPUs."""
        ...

    @property
    def links(self) -> Sequence[Link]:
        """Every direction of every connection."""
        ...

    @property
    def capacities(self) -> Sequence[float]:
        """``bytes_per_s`` of every link, without making the links."""
        ...

    @property
    def host_bytes(self) -> int:
        """Memory of one node's host."""
        ...

    @property
    def bisection_bytes_per_s(self) -> float:
        """From the first half of the nodes to the second."""
        ...

    def route(self, source: int, target: int, rail: int | None = None) -> tuple[int, ...]:
        """Indexes into ``links`` from device to device.

        Where it crosses the network it uses NIC ``rail`` on both sides (default: the source's own).
        Through the memory of a host, where one GPU writes and another reads, it may take a vertex
        twice.
        """
        ...

    def to_host(self, device: int) -> tuple[int, ...]:
        """Indexes into ``links`` from a device to the memory of its host."""
        ...

    def from_host(self, device: int) -> tuple[int, ...]:
        """Indexes into ``links`` from the memory of its host to a device."""
        ...

    def nics(self, node: int) -> int:
        """How many NICs node ``node`` has."""
        ...


@runtime_checkable
class Turning(Protocol):
    """A cluster of equal nodes that is the same after its nodes have turned.

    Nodes turn within blocks of consecutive nodes, a multiple of ``turn_nodes`` long: each moves
    some multiple of ``turn_nodes`` on, and the last ones to the front. Routes turn with them.
    """

    @property
    def turn_nodes(self) -> int:
        """The least that nodes can turn."""
        ...

    def first_alike(self, turns: Sequence[tuple[int, int]]) -> Callable[[int], int]:
        """From the number of a link to the least that ``turns`` map it to.

        Each is by how many nodes, and within blocks of how many; inner ones first.
        """
        ...


def vertex_kind(vertex: str) -> str:
    """What a vertex is, by its name.

    >>> vertex_kind("node3/gpu5"), vertex_kind("unit0/leaf5"), vertex_kind("spine7")
    ('gpu', 'leaf', 'spine')
    """
    return vertex.rpartition("/")[2].rstrip("0123456789")
