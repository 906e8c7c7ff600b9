"""Nodes in which every two GPUs have a link of their own: MI300X and its kin over xGMI."""

from __future__ import annotations

from simulator.hardware.builders.peers import Meshed
from simulator.hardware.builders.railed import Railed
from simulator.hardware.builders.wire import Wire
from simulator.hardware.section import Section


class Mesh(Railed):
    """One topology file of this shape."""

    __slots__ = ()

    @classmethod
    def peers(cls, file: Section) -> Meshed:
        """From ``xgmi``: one link of a pair."""
        return Meshed(wire=Wire.below(file, "xgmi"), kind="xgmi")
