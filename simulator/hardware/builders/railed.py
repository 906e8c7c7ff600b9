"""Equal nodes on a rail-optimised fabric: what shapes share but how a node joins its GPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.builder import Request
from simulator.hardware.builders.fabric import Fabric
from simulator.hardware.builders.node import NodeShape
from simulator.hardware.builders.peers import Peers
from simulator.hardware.builders.rail_cluster import RailCluster
from simulator.hardware.cluster import Cluster
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Railed(ABC):
    """One topology file; ``domain_nodes`` of its nodes share one NVSwitch."""

    node: NodeShape
    fabric: Fabric | None
    domain_nodes: int

    @classmethod
    def read(cls, file: Section) -> Self:
        """From what joins the GPUs, ``node``, its wires, ``nic`` and ``fabric``."""
        node = NodeShape.read(file, cls.peers(file))
        domain_nodes = cls.domain(file)
        return cls(node=node, fabric=Fabric.read(file, node.tree.nics), domain_nodes=domain_nodes)

    @classmethod
    @abstractmethod
    def peers(cls, file: Section) -> Peers:
        """How the GPUs of a node reach each other. Raises UserError."""

    @classmethod
    def domain(cls, file: Section) -> int:
        """How many nodes share one NVSwitch. Raises UserError."""
        return 1

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.node.tree.gpus

    def build(self, request: Request) -> Cluster:
        """The cluster; nodes with fewer GPUs keep what belongs to those, a domain may be short."""
        return RailCluster(self.node, self.fabric, request, self.domain_nodes)
