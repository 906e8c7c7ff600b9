"""The cluster as a graph: GPUs, switches, host memory and NICs as vertices, directed links between.

The graph is wrapped here once; nothing outside ``hardware/`` sees networkx or attribute dicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.hardware.gpu import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a connection between two vertices.

    ``bytes_per_s`` is what large transfers reach (line rate times the link kind's efficiency),
    ``latency_s`` one hop's delay. ``kind``: ``nvlink``, ``pcie``, ``nic``, ``fabric``.
    """

    source: str
    target: str
    kind: str
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU in its place; ``name`` is ``node3/gpu5``."""

    name: str
    node: int
    local: int
    gpu: Gpu


class Cluster(Protocol):
    """What the rest of dryfit asks of a topology."""

    name: str
    network: str  # inter-node network kind: "ib-ndr" | "ib-hdr" | ... | "none"
    devices: Sequence[Device]
    links: Sequence[Link]

    def route(self, source: int, target: int, rail: int | None = None) -> tuple[int, ...]:
        """Indexes into ``links`` from device to device.

        Between nodes the path uses NIC ``rail`` on both sides (default: the source's own).
        """
        ...

    def nics(self, node: int) -> int:
        """How many NICs node ``node`` has."""
        ...
