"""What is above the GPUs of a node: PCIe switches, CPUs, one host memory.

GPUs and NICs share PCIe switches, those a CPU each by turns. Where GPUs are joined to their CPU
by NVLink-C2C there are no switches, and the NICs are below the CPUs. A NIC that serves more GPUs
than a switch has is below a CPU, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from simulator.hardware.builders.pair import Pair, Way
from simulator.hardware.builders.wire import Wire
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTree:
    """Of a full node, even where fewer GPUs are used; ``c2c`` joins GPUs to CPUs directly."""

    gpus: int
    nics: int
    cpus: int
    gpus_per_pcie_switch: int
    pcie: Wire
    memory: Wire
    c2c: Wire | None

    @classmethod
    def read(cls, file: Section) -> Self:
        """From ``node``, ``pcie``, ``memory`` and, if it is there, ``c2c``. Raises UserError."""
        c2c = Wire.below(file, "c2c") if file.has("c2c") else None
        with file.section("node").closing() as section:
            section.text("source")
            tree = cls(
                gpus=section.count("gpus"),
                nics=section.count("nics", least=0),
                cpus=section.count("cpus"),
                gpus_per_pcie_switch=1 if c2c else section.count("gpus_per_pcie_switch"),
                pcie=Wire.below(file, "pcie"),
                memory=Wire.below(file, "memory"),
                c2c=c2c,
            )
            if section.sound:
                tree._check(section)
        return tree

    def _check(self, section: Section) -> None:
        """Every GPU has as many NICs, or every NIC as many GPUs: whole switches or parts of one."""
        if self.nics and max(self.gpus, self.nics) % min(self.gpus, self.nics):
            section.wrong("nics", f"{self.nics} NICs don't divide over {self.gpus} GPUs")
        share, switch = self._sharing, self.gpus_per_pcie_switch
        if switch % share and share % switch:
            section.wrong(
                "gpus_per_pcie_switch", f"{share} GPUs share a NIC, which fits no {switch} a switch"
            )

    @property
    def _sharing(self) -> int:
        """How many GPUs share a NIC."""
        return max(1, self.gpus // self.nics) if self.nics else 1

    def nics_of(self, gpus: int) -> int:
        """How many NICs are beside the first ``gpus`` GPUs."""
        return -(-gpus * self.nics // self.gpus)

    def own_rail(self, gpu: int) -> int:
        """The first NIC beside a GPU."""
        return gpu * self.nics // self.gpus

    def owner(self, rail: int) -> int:
        """The first GPU beside a NIC."""
        return rail * self.gpus // self.nics

    def beside(self, gpu: int, rail: int) -> bool:
        """Whether a NIC is beside a GPU."""
        return self.own_rail(gpu) == rail or self.owner(rail) == gpu

    def copies_per_s(self, gpus: int) -> float:
        """What each of ``gpus`` GPUs copies from or to the host while all of them do."""
        first = self.c2c or self.pcie
        alike = range(min(gpus, self.gpus))
        switch = 1 if self.c2c else min(self.gpus_per_pcie_switch, gpus)
        below = max(sum(self._cpu(gpu) == cpu for gpu in alike) for cpu in range(self.cpus))
        return min(first.copies_per_s / switch, self.memory.copies_per_s / below)

    def up(self, vertex: str) -> Way:
        """From a GPU or NIC to the host's memory."""
        if vertex.startswith("gpu"):
            gpu = int(vertex.removeprefix("gpu"))
            switch = () if self.c2c else (f"pcie{gpu // self.gpus_per_pcie_switch}",)
            return (vertex, *switch, f"cpu{self._cpu(gpu)}", "host")
        above = self.up(f"gpu{self.owner(int(vertex.removeprefix('nic')))}")
        return (vertex, *(above[2:] if self._nics_below_cpus else above[1:]))

    def between(self, one: str, other: str) -> Way:
        """The shortest way, over what both are below."""
        there, back = self.up(one), self.up(other)
        top = next(vertex for vertex in there if vertex in back)
        return there[: there.index(top) + 1] + back[: back.index(top)][::-1]

    def pairs(self, gpus: int) -> Iterator[Pair]:
        """All connections above the first ``gpus`` GPUs, each once."""
        ways = [self.up(f"gpu{gpu}") for gpu in range(gpus)]
        kind, wire = ("c2c", self.c2c) if self.c2c else ("pcie", self.pcie)
        for way in ways:
            yield Pair(way[0], way[1], kind, wire)
        for nic in range(self.nics_of(gpus)):
            yield Pair(self.up(f"nic{nic}")[1], f"nic{nic}", "pcie", self.pcie)
        if not self.c2c:
            for switch, cpu in dict.fromkeys(way[1:3] for way in ways):
                yield Pair(switch, cpu, "pcie", self.pcie)
        for cpu in dict.fromkeys(way[-2] for way in ways):
            yield Pair(cpu, "host", "memory", self.memory)

    @property
    def _nics_below_cpus(self) -> bool:
        return self.c2c is None and self._sharing > self.gpus_per_pcie_switch

    def _cpu(self, gpu: int) -> int:
        if self.c2c:
            return gpu * self.cpus // self.gpus
        switches = -(-self.gpus // self.gpus_per_pcie_switch)
        return gpu // self.gpus_per_pcie_switch * self.cpus // switches
