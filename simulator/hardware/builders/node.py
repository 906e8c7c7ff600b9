"""One node: GPUs and what joins them, NICs beside them, the host above.

Links come in pairs, outwards (an even number) and back (odd), numbered from 0 within the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from simulator.hardware.builders.host_tree import HostTree
from simulator.hardware.builders.pair import Way
from simulator.hardware.builders.peers import Peers
from simulator.hardware.section import Section

Path = tuple[int, ...]
"""Link numbers within the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What is in a node, and how it is wired; of a full node, even where fewer GPUs are used."""

    peers: Peers
    tree: HostTree

    @classmethod
    def read(cls, file: Section, peers: Peers) -> Self:
        """From ``node`` and the wires of the host. Raises UserError."""
        return cls(peers=peers, tree=HostTree.read(file))


class Node:
    """The links of a node that has the first ``gpus`` of its GPUs, and the paths along them."""

    def __init__(self, shape: NodeShape, gpus: int) -> None:
        """Wire it."""
        self.gpus, self.nics = gpus, shape.tree.nics_of(gpus)
        self.copies_per_s = shape.tree.copies_per_s(gpus)
        self.pairs = (*shape.peers.pairs(gpus), *shape.tree.pairs(gpus))
        self.links = 2 * len(self.pairs)
        self._peers, self._tree = shape.peers, shape.tree
        self._number = {pair[:2]: 2 * index for index, pair in enumerate(self.pairs)}
        devices, rails = range(gpus), range(self.nics)
        self.own_rail = [shape.tree.own_rail(gpu) for gpu in devices]
        self.to_gpu = [[self._path(self._to_gpu(a, b)) for b in devices] for a in devices]
        self.to_nic = [[self._path(self._to_nic(a, nic)) for nic in rails] for a in devices]
        self.from_nic = [[_back(path) for path in paths] for paths in self.to_nic]
        self.to_host = [self._path(shape.tree.up(f"gpu{gpu}")) for gpu in devices]
        self.from_host = [_back(path) for path in self.to_host]

    def to_switch(self, gpu: int) -> int:
        """The link from a GPU to the NVSwitch."""
        return self._number[f"gpu{gpu}", "nvswitch"]

    def _to_gpu(self, source: int, target: int) -> Way:
        return () if source == target else self._peers.way(source, target, self._tree)

    def _to_nic(self, gpu: int, rail: int) -> Way:
        """To a NIC that isn't beside it: over the GPU that it is beside, if that one relays."""
        tree, beside = self._tree, gpu
        if self._peers.relays and not tree.beside(gpu, rail):
            beside = tree.owner(rail)
        return self._to_gpu(gpu, beside)[:-1] + tree.between(f"gpu{beside}", f"nic{rail}")

    def _path(self, way: Way) -> Path:
        return tuple(self._hop(*hop) for hop in pairwise(way))

    def _hop(self, a: str, b: str) -> int:
        out = self._number.get((a, b))
        return self._number[b, a] + 1 if out is None else out


def _back(path: Path) -> Path:
    """The same way in the other direction."""
    return tuple(link ^ 1 for link in reversed(path))
