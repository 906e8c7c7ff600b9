"""Nodes whose GPUs have no links of their own but PCIe, or NVLink bridges over pairs."""

from __future__ import annotations

from simulator.hardware.builders.peers import OverPcie
from simulator.hardware.builders.railed import Railed
from simulator.hardware.builders.wire import Wire
from simulator.hardware.section import Section


class Pcie(Railed):
    """One topology file of this shape."""

    __slots__ = ()

    @classmethod
    def peers(cls, file: Section) -> OverPcie:
        """From ``peer_to_peer``, and ``bridge`` if it is there."""
        bridge = Wire.below(file, "bridge") if file.has("bridge") else None
        return OverPcie(bridge=bridge, direct=file.flag("peer_to_peer"))
