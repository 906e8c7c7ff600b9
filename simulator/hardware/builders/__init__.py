"""What a topology file can build: one builder a shape of cluster, by the name it has there."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.hardware.builders.builder import Builder, Request
from simulator.hardware.builders.mesh import Mesh
from simulator.hardware.builders.nvlink_domain import NvlinkDomain
from simulator.hardware.builders.pcie import Pcie
from simulator.hardware.builders.rail_optimised import RailOptimised

__all__ = ["BUILDERS", "Builder", "Request"]

BUILDERS: Mapping[str, type[Builder]] = {
    "rail_optimised": RailOptimised,
    "nvlink_domain": NvlinkDomain,
    "mesh": Mesh,
    "pcie": Pcie,
}
