"""NVSwitch nodes on a rail-optimised fabric: DGX, HGX and the cloud instances made of them."""

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
class RailOptimised:
    """One topology file of this shape."""

    node: NodeShape
    fabric: Fabric | None

    @classmethod
    def read(cls, file: Section) -> Self:
        """From ``nvlink``, ``node``, its wires, ``nic`` and ``fabric``. Raises UserError."""
        node = NodeShape.read(file, Switched(wire=Wire.below(file, "nvlink")))
        return cls(node=node, fabric=Fabric.read(file, node.tree.nics))

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.node.tree.gpus

    def build(self, request: Request) -> Cluster:
        """The cluster; nodes with fewer GPUs keep the NICs and PCIe switches of those."""
        return RailCluster(self.node, self.fabric, request)
