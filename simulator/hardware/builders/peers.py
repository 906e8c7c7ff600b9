"""How the GPUs of one node reach each other: by a switch, by links of their own, or by the host.

One class each behind ``Peers``, which a builder reads and a node is wired by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from simulator.hardware.builders.host_tree import HostTree
from simulator.hardware.builders.pair import Pair, Way
from simulator.hardware.builders.wire import Wire


class Peers(Protocol):
    """``relays``: whether a GPU passes on to its NIC what others send (NCCL's PXN)."""

    @property
    def relays(self) -> bool:
        """Whether the way to a NIC leads over the GPU beside it."""
        ...

    def pairs(self, gpus: int) -> Iterator[Pair]:
        """The connections of the first ``gpus`` GPUs, beside those to the host."""
        ...

    def way(self, source: int, target: int, tree: HostTree) -> Way:
        """From GPU to another GPU of the node."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """All on one NVSwitch that never blocks."""

    wire: Wire
    relays: bool = True

    def pairs(self, gpus: int) -> Iterator[Pair]:
        """One to the switch each."""
        for gpu in range(gpus):
            yield Pair(f"gpu{gpu}", "nvswitch", "nvlink", self.wire)

    def way(self, source: int, target: int, tree: HostTree) -> Way:
        """Over the switch."""
        return f"gpu{source}", "nvswitch", f"gpu{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meshed:
    """A link between every two GPUs."""

    wire: Wire
    kind: str
    relays: bool = True

    def pairs(self, gpus: int) -> Iterator[Pair]:
        """One between every two."""
        for a, b in combinations(range(gpus), 2):
            yield Pair(f"gpu{a}", f"gpu{b}", self.kind, self.wire)

    def way(self, source: int, target: int, tree: HostTree) -> Way:
        """The link between both."""
        return f"gpu{source}", f"gpu{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverPcie:
    """No links of their own but, where given, an NVLink ``bridge`` on GPUs 0 and 1, 2 and 3, ...

    ``direct``: they read each other's memory over PCIe; else it goes through the host's memory,
    where one writes what the other reads.
    """

    bridge: Wire | None
    direct: bool
    relays: bool = False

    def pairs(self, gpus: int) -> Iterator[Pair]:
        """The bridges."""
        if self.bridge:
            for gpu in range(0, gpus - 1, 2):
                yield Pair(f"gpu{gpu}", f"gpu{gpu + 1}", "nvlink", self.bridge)

    def way(self, source: int, target: int, tree: HostTree) -> Way:
        """Over the bridge, over what both are below, or in and out of the host's memory."""
        one, other = f"gpu{source}", f"gpu{target}"
        if self.bridge and source // 2 == target // 2:
            return one, other
        if self.direct:
            return tree.between(one, other)
        return tree.up(one) + tree.up(other)[-2::-1]
