"""A small cluster by hand: GPUs on one switch a node, NICs on rails, one leaf a rail."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from simulator.dtypes import DType
from simulator.hardware.cluster import Device, Link
from simulator.hardware.gpu import Gpu


def gpu(
    family: str = "H100",
    *,
    tflops: float = 989.0,
    sms: int = 132,
    tbytes: float = 3.35,
    watts: float = 700.0,
    fp8: float | None = None,
) -> Gpu:
    peaks: Mapping[DType, float] = {DType.BF16: tflops * 1e12, DType.FP16: tflops * 1e12}
    return Gpu(
        name=f"{family} for tests",
        family=family,
        usable_bytes=79 << 30,
        hbm_bytes_per_s=tbytes * 1e12,
        peak_flops={**peaks, DType.FP8: fp8 * 1e12} if fp8 else peaks,
        sms=sms,
        tdp_watts=700.0,
        power_watts=watts,
        source="tests",
    )


class StarCluster:
    """``nodes`` of ``gpus`` GPUs with ``nics`` NICs each; rates in GB/s a direction.

    ``nodes_a_switch``: nodes that one NVLink domain spans.
    """

    def __init__(
        self,
        nodes: int,
        gpus: int = 8,
        nics: int = 8,
        *,
        device: Gpu | None = None,
        inside: float = 369.0,
        kind: str = "nvlink",
        nic: float = 48.5,
        network: str = "ib-ndr",
        nodes_a_switch: int = 1,
    ) -> None:
        self.name = f"{nodes}x{gpus}"
        self.network = network
        self._gpus, self._nics, self._nodes_a_switch = gpus, nics, nodes_a_switch
        self.devices = [
            Device(name=f"node{n}/gpu{g}", node=n, local=g, gpu=device or gpu())
            for n in range(nodes)
            for g in range(gpus)
        ]
        self.links: list[Link] = []
        self._index: dict[tuple[str, str], int] = {}
        for one in self.devices:
            self._connect(one.name, self._switch(one), kind, inside)
            for rail in range(nics):
                if self._beside(rail, one.local):
                    self._connect(one.name, f"node{one.node}/nic{rail}", "pcie", 55.0)
        for n in range(nodes):
            for rail in range(nics):
                self._connect(f"node{n}/nic{rail}", f"leaf{rail}", "nic", nic)

    @property
    def capacities(self) -> list[float]:
        return [link.bytes_per_s for link in self.links]

    def nics(self, node: int) -> int:
        return self._nics

    def route(self, source: int, target: int, rail: int | None = None) -> tuple[int, ...]:
        a, b = self.devices[source], self.devices[target]
        if self._switch(a) == self._switch(b):
            path = [a.name, self._switch(a), b.name]
        else:
            if rail is None:
                rail = a.local * self._nics // self._gpus
            there = [*self._to_nic(a, rail), f"leaf{rail}"]
            path = there + self._to_nic(b, rail)[::-1]
        return tuple(self._index[hop] for hop in pairwise(path))

    def _switch(self, one: Device) -> str:
        return f"switch{one.node // self._nodes_a_switch}"

    def _to_nic(self, one: Device, rail: int) -> list[str]:
        nic = f"node{one.node}/nic{rail}"
        if self._beside(rail, one.local):
            return [one.name, nic]
        owner = next(g for g in range(self._gpus) if self._beside(rail, g))
        return [one.name, self._switch(one), f"node{one.node}/gpu{owner}", nic]

    def _beside(self, rail: int, local: int) -> bool:
        if self._nics >= self._gpus:
            return rail * self._gpus // self._nics == local
        return local * self._nics // self._gpus == rail

    def _connect(self, a: str, b: str, kind: str, gbytes: float) -> None:
        for source, target in ((a, b), (b, a)):
            self._index[source, target] = len(self.links)
            self.links.append(
                Link(
                    source=source,
                    target=target,
                    kind=kind,
                    bytes_per_s=gbytes * 1e9,
                    latency_s=0.0,
                )
            )
