"""The network between nodes: a rail-optimised tree of two tiers, as a DGX SuperPOD is wired.

NIC i of every node in a *scalable unit* goes to leaf i of that unit, and every leaf to every
spine of a second tier, whose width is the unit's NICs over ``oversubscription``. One unit has no
spines, and one node no leaves. Sources: NVIDIA's DGX SuperPOD reference architecture, by way of
stas00/ml-engineering@744d01e network/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.wire import Wire
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """``uplink`` is one direction between one leaf and one spine of a ``unit_nodes`` node unit."""

    unit_nodes: int
    spines: int
    nic: Wire
    uplink: Wire

    @classmethod
    def read(cls, file: Section, nics: int) -> Self | None:
        """From ``nic`` and ``fabric``; None for a node without NICs. Raises UserError."""
        network = file.text("network")
        if file.sound and (nics == 0) != (network == "none"):
            file.wrong("network", f"is {network!r}, and a node has {nics} NICs")
        if not (nics if file.sound else file.has("fabric")):
            return None
        nic = Wire.below(file, "nic")
        with file.section("fabric").closing() as section:
            return cls._read(section, nic)

    @classmethod
    def _read(cls, section: Section, nic: Wire) -> Self:
        section.text("source")
        unit_nodes, spines = section.count("unit_nodes"), section.count("spines")
        share = section.number("efficiency", 0, 1) / section.number("oversubscription", 0, 1000)
        rate = unit_nodes * nic.bytes_per_s * share / spines
        wire = Wire(bytes_per_s=rate, copies_per_s=rate, latency_s=section.time("latency"))
        return cls(unit_nodes=unit_nodes, spines=spines, nic=nic, uplink=wire)
