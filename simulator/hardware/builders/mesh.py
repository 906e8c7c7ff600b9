"""Nodes in which every two GPUs have a link of their own: MI300X and its kin over xGMI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.builder import Request
from simulator.hardware.builders.fabric import Fabric
from simulator.hardware.builders.node import NodeShape
from simulator.hardware.builders.peers import Meshed
from simulator.hardware.builders.rail_cluster import RailCluster
from simulator.hardware.builders.wire import Wire
from simulator.hardware.cluster import Cluster
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """One topology file of this shape."""

    node: NodeShape
    fabric: Fabric | None

    @classmethod
    def read(cls, file: Section) -> Self:
        """From ``xgmi`` (one link of a pair), ``node``, its wires, ``nic`` and ``fabric``."""
        node = NodeShape.read(file, Meshed(wire=Wire.below(file, "xgmi"), kind="xgmi"))
        return cls(node=node, fabric=Fabric.read(file, node.tree.nics))

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.node.tree.gpus

    def build(self, request: Request) -> Cluster:
        """The cluster; nodes with fewer GPUs keep the links between those."""
        return RailCluster(self.node, self.fabric, request)
