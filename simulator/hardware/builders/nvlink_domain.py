"""Nodes that share an NVSwitch: trays of an NVL72 rack, and racks on a rail-optimised fabric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.builder import Request
from simulator.hardware.builders.fabric import Fabric
from simulator.hardware.builders.node import NodeShape
from simulator.hardware.builders.peers import Switched
from simulator.hardware.builders.rail_cluster import RailCluster
from simulator.hardware.builders.wire import Wire
from simulator.hardware.cluster import Cluster
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlinkDomain:
    """One topology file of this shape; ``nodes`` share one NVSwitch."""

    node: NodeShape
    fabric: Fabric | None
    nodes: int

    @classmethod
    def read(cls, file: Section) -> Self:
        """As ``rail_optimised``, with ``domain``: how many nodes there are in one."""
        node = NodeShape.read(file, Switched(wire=Wire.below(file, "nvlink")))
        with file.section("domain").closing() as section:
            section.text("source")
            nodes = section.count("nodes")
        return cls(node=node, fabric=Fabric.read(file, node.tree.nics), nodes=nodes)

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.node.tree.gpus

    def build(self, request: Request) -> Cluster:
        """The cluster; the last domain may be incomplete."""
        return RailCluster(self.node, self.fabric, request, domain_nodes=self.nodes)
