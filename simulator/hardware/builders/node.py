"""One NVSwitch node: GPUs on a switch that never blocks, NICs beside them, the host above.

GPUs and NICs share PCIe switches, those a CPU each by turns, and the CPUs one host memory. Links
come in pairs, outwards (an even number) and back (odd), numbered from 0 within the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from simulator.hardware.builders.wire import Wire
from simulator.hardware.section import Section

Path = tuple[int, ...]
"""Link numbers within the node."""


class Pair(NamedTuple):
    """Both directions between two vertices, named without their node."""

    inner: str
    outer: str
    kind: str
    wire: Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What is in a node, and how it is wired; of a full node, even where fewer GPUs are used."""

    gpus: int
    nics: int
    cpus: int
    gpus_per_pcie_switch: int
    nvlink: Wire
    pcie: Wire
    memory: Wire

    @classmethod
    def read(cls, file: Section) -> Self:
        """From ``node``, ``nvlink``, ``pcie`` and ``memory``. Raises UserError."""
        wires = {}
        for key in ("nvlink", "pcie", "memory"):
            with file.section(key).closing() as section:
                wires[key] = Wire.read(section)
        with file.section("node").closing() as section:
            section.text("source")
            shape = cls(
                gpus=section.count("gpus"),
                nics=section.count("nics"),
                cpus=section.count("cpus"),
                gpus_per_pcie_switch=section.count("gpus_per_pcie_switch"),
                **wires,
            )
            shape._check(section)
        return shape

    def _check(self, section: Section) -> None:
        """Every GPU has as many NICs, or every NIC as many GPUs, all on one PCIe switch."""
        if max(self.gpus, self.nics) % min(self.gpus, self.nics):
            raise section.wrong("nics", f"{self.nics} NICs don't divide over {self.gpus} GPUs")
        if self.gpus_per_pcie_switch % max(1, self.gpus // self.nics):
            raise section.wrong(
                "gpus_per_pcie_switch",
                f"{self.gpus // self.nics} GPUs share a NIC, so a switch has a multiple of that",
            )

    def nics_of(self, gpus: int) -> int:
        """How many NICs are beside the first ``gpus`` GPUs."""
        return -(-gpus * self.nics // self.gpus)

    def own_rail(self, gpu: int) -> int:
        """The first NIC beside a GPU."""
        return gpu * self.nics // self.gpus

    def owner(self, rail: int) -> int:
        """The first GPU beside a NIC."""
        return rail * self.gpus // self.nics

    def cpu_of(self, switch: int) -> int:
        """The CPU that a PCIe switch hangs on."""
        switches = -(-self.gpus // self.gpus_per_pcie_switch)
        return switch * self.cpus // switches


class Node:
    """The links of a node that has the first ``gpus`` of its GPUs, and the paths along them."""

    def __init__(self, shape: NodeShape, gpus: int) -> None:
        """Wire it."""
        self.gpus, self.nics = gpus, shape.nics_of(gpus)
        self.pairs = tuple(_pairs(shape, gpus, self.nics))
        self._shape = shape
        self._number = {pair[:2]: 2 * index for index, pair in enumerate(self.pairs)}
        self._switch = [gpu // shape.gpus_per_pcie_switch for gpu in range(gpus)]
        devices, rails = range(gpus), range(self.nics)
        self.to_nic = [[self._to_nic(gpu, rail) for rail in rails] for gpu in devices]
        self.from_nic = [[_back(path) for path in paths] for paths in self.to_nic]
        self.to_gpu = [[self._to_gpu(a, b) for b in devices] for a in devices]
        self.to_host = [self._to_host(gpu) for gpu in devices]
        self.from_host = [_back(path) for path in self.to_host]

    @property
    def links(self) -> int:
        """How many directed links there are."""
        return 2 * len(self.pairs)

    def _to_gpu(self, source: int, target: int) -> Path:
        if source == target:
            return ()
        up, down = (self._number[f"gpu{gpu}", "nvswitch"] for gpu in (source, target))
        return up, down + 1

    def _to_nic(self, gpu: int, rail: int) -> Path:
        """To a NIC that isn't beside it, over the GPU that it is beside (NCCL's PXN)."""
        beside = gpu if self._beside(gpu, rail) else self._shape.owner(rail)
        switch = f"pcie{self._switch[beside]}"
        out = self._number[f"gpu{beside}", switch], self._number[switch, f"nic{rail}"]
        return self._to_gpu(gpu, beside) + out

    def _beside(self, gpu: int, rail: int) -> bool:
        return self._shape.own_rail(gpu) == rail or self._shape.owner(rail) == gpu

    def _to_host(self, gpu: int) -> Path:
        switch = f"pcie{self._switch[gpu]}"
        cpu = f"cpu{self._shape.cpu_of(self._switch[gpu])}"
        hops = ((f"gpu{gpu}", switch), (switch, cpu), (cpu, "host"))
        return tuple(self._number[hop] for hop in hops)


def _pairs(shape: NodeShape, gpus: int, nics: int) -> Iterator[Pair]:
    switch_of = [gpu // shape.gpus_per_pcie_switch for gpu in range(gpus)]
    switches = sorted(set(switch_of))
    for gpu in range(gpus):
        yield Pair(f"gpu{gpu}", "nvswitch", "nvlink", shape.nvlink)
    for gpu in range(gpus):
        yield Pair(f"gpu{gpu}", f"pcie{switch_of[gpu]}", "pcie", shape.pcie)
    for nic in range(nics):
        yield Pair(f"pcie{switch_of[shape.owner(nic)]}", f"nic{nic}", "pcie", shape.pcie)
    for switch in switches:
        yield Pair(f"pcie{switch}", f"cpu{shape.cpu_of(switch)}", "pcie", shape.pcie)
    for cpu in sorted({shape.cpu_of(switch) for switch in switches}):
        yield Pair(f"cpu{cpu}", "host", "memory", shape.memory)


def _back(path: Path) -> Path:
    """The same way in the other direction."""
    return tuple(link ^ 1 for link in reversed(path))
