"""NVSwitch nodes on a rail-optimised fabric: DGX, HGX and the cloud instances made of them."""

from __future__ import annotations

from simulator.hardware.builders.peers import Switched
from simulator.hardware.builders.railed import Railed
from simulator.hardware.builders.wire import Wire
from simulator.hardware.section import Section


class RailOptimised(Railed):
    """One topology file of this shape."""

    __slots__ = ()

    @classmethod
    def peers(cls, file: Section) -> Switched:
        """From ``nvlink``: a GPU's connection to the switch."""
        return Switched(wire=Wire.below(file, "nvlink"))
