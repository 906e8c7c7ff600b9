"""What of a cluster its picture shows: one node in full, the rest in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.hardware.cluster import Cluster, Link, vertex_kind
from simulator.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """What of a cluster is drawn: one node in full, the rest in numbers.

    ``inside`` are the node's links and ``up`` those of its NICs, each connection once.
    ``mates`` are the nodes on its leaves, itself included; ``sharing`` those on its NVSwitch.
    """

    inside: Sequence[Link]
    up: Sequence[Link]
    spines: Sequence[str]
    uplink: Link | None
    mates: int
    sharing: int
    nodes: int
    units: int
    gpus: int
    gpu_memory: str
    host: str

    def linked(self, a: str, b: str) -> bool:
        """Whether two of the node's vertices are."""
        return any({link.source, link.target} == {a, b} for link in self.inside)

    def of(self, kind: str) -> list[str]:
        """The node's vertices of a kind, in order."""
        ends = dict.fromkeys(end for link in self.inside for end in (link.source, link.target))
        return [vertex for vertex in ends if vertex_kind(vertex) == kind]


def sketch(cluster: Cluster) -> Sketch:
    """Look through the links once."""
    inside: list[Link] = []
    up: list[Link] = []
    seen: set[frozenset[str]] = set()
    on_leaf: dict[str, int] = {}
    on_switch: set[str] = set()
    spines: dict[str, Link] = {}
    for link in cluster.links:
        if vertex_kind(link.target) == "leaf" and link.kind == "nic":
            on_leaf[link.target] = on_leaf.get(link.target, 0) + 1
        if link.target == "domain0/nvswitch":
            on_switch.add(link.source.partition("/")[0])
        if vertex_kind(link.target) == "spine":
            spines.setdefault(link.target, link)
        ends = frozenset((link.source, link.target))
        if link.source.startswith("node0/") and ends not in seen:
            seen.add(ends)
            (up if vertex_kind(link.target) == "leaf" else inside).append(link)
    return Sketch(
        inside=inside,
        up=up,
        spines=tuple(spines),
        uplink=next(iter(spines.values()), None),
        mates=on_leaf[up[0].target] if up else 1,
        sharing=max(1, len(on_switch)),
        nodes=cluster.devices[-1].node + 1,
        units=len({leaf.rpartition("/")[0] for leaf in on_leaf}),
        gpus=len(cluster.devices),
        gpu_memory=format_bytes(cluster.devices[0].gpu.usable_bytes, decimals=0),
        host=format_bytes(cluster.host_bytes, decimals=None) if cluster.host_bytes else "",
    )
