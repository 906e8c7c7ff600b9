"""Nodes that share an NVSwitch: trays of an NVL72 rack, and racks on a rail-optimised fabric."""

from __future__ import annotations

from simulator.hardware.builders.rail_optimised import RailOptimised
from simulator.hardware.section import Section


class NvlinkDomain(RailOptimised):
    """One topology file of this shape: as ``rail_optimised``, several nodes on one NVSwitch."""

    __slots__ = ()

    @classmethod
    def domain(cls, file: Section) -> int:
        """From ``domain``: how many nodes there are in one."""
        with file.section("domain").closing() as section:
            section.text("source")
            return section.count("nodes")
