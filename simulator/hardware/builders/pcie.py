"""Nodes whose GPUs have no links of their own but PCIe, or NVLink bridges over pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.builder import Request
from simulator.hardware.builders.fabric import Fabric
from simulator.hardware.builders.node import NodeShape
from simulator.hardware.builders.peers import OverPcie
from simulator.hardware.builders.rail_cluster import RailCluster
from simulator.hardware.builders.wire import Wire
from simulator.hardware.cluster import Cluster
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Pcie:
    """One topology file of this shape."""

    node: NodeShape
    fabric: Fabric | None

    @classmethod
    def read(cls, file: Section) -> Self:
        """From ``peer_to_peer``, ``bridge`` if it is there, ``node``, its wires and the fabric."""
        bridge = Wire.below(file, "bridge") if file.has("bridge") else None
        peers = OverPcie(bridge=bridge, direct=file.flag("peer_to_peer"))
        node = NodeShape.read(file, peers)
        return cls(node=node, fabric=Fabric.read(file, node.tree.nics))

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.node.tree.gpus

    def build(self, request: Request) -> Cluster:
        """The cluster; nodes with fewer GPUs keep what is above those."""
        return RailCluster(self.node, self.fabric, request)
