"""NVSwitch nodes on a rail-optimised fabric, as a DGX SuperPOD is wired.

NIC i of every node in a *scalable unit* goes to leaf i of that unit, and every leaf to every
spine of a second tier, whose width is the unit's NICs over ``oversubscription``. One unit has no
spines, and one node no leaves. Sources: NVIDIA's DGX SuperPOD reference architecture, by way of
stas00/ml-engineering@744d01e network/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.builder import Request
from simulator.hardware.builders.node import NodeShape
from simulator.hardware.builders.rail_cluster import RailCluster
from simulator.hardware.builders.wire import Wire
from simulator.hardware.cluster import Cluster
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """``uplink`` is one direction between one leaf and one spine of a ``unit_nodes`` node unit."""

    unit_nodes: int
    spines: int
    nic: Wire
    uplink: Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class RailOptimised:
    """One topology file of this shape."""

    node: NodeShape
    fabric: Fabric

    @classmethod
    def read(cls, file: Section) -> Self:
        """From ``node``, its wires, ``nic`` and ``fabric``. Raises UserError."""
        node = NodeShape.read(file)
        with file.section("nic").closing() as section:
            nic = Wire.read(section)
        with file.section("fabric").closing() as section:
            return cls(node=node, fabric=_fabric(section, nic))

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.node.gpus

    def build(self, request: Request) -> Cluster:
        """The cluster; nodes with fewer GPUs keep the NICs and PCIe switches of those."""
        return RailCluster(self.node, self.fabric, request)


def _fabric(section: Section, nic: Wire) -> Fabric:
    section.text("source")
    unit_nodes, spines = section.count("unit_nodes"), section.count("spines")
    share = section.number("efficiency", 0, 1) / section.number("oversubscription", 0, 1000)
    return Fabric(
        unit_nodes=unit_nodes,
        spines=spines,
        nic=nic,
        uplink=Wire(
            bytes_per_s=unit_nodes * nic.bytes_per_s * share / spines,
            latency_s=section.time("latency"),
        ),
    )
