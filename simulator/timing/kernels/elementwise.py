"""Seconds of a kernel that memory bounds: a start, then its bytes at a fraction of HBM's rate."""

from __future__ import annotations

from functools import cache

from simulator.errors import ProgramError
from simulator.hardware.gpu import Gpu
from simulator.kernels import Elementwise
from simulator.timing.constants import constants


def elementwise_seconds(kernel: Elementwise, gpu: Gpu) -> float:
    """Seconds of ``kernel`` alone on ``gpu``: 3 us + bytes / (h · HBM).

    h by kind is in ``data/kernels.json`` with its source; FLOPs do not count. A copy from or to
    host memory goes at what the GPU's way there gives it while its neighbours copy too, or, where
    it stands in no node, at what its family's PCIe link does.
    """
    if kernel.kind in constants("kernels")["host_copies"]["kinds"]:
        return kernel.written / (gpu.host_bytes_per_s or _host_rate(gpu.family))
    t0, h = _class(kernel.kind)
    return t0 + (kernel.read + kernel.written) / (h * gpu.hbm_bytes_per_s)


@cache
def _host_rate(family: str) -> float:
    """Bytes per second of a copy between host and device, over a family's PCIe link."""
    known = constants("kernels")["host_copies"]
    rate: float = known["bytes_per_s"].get(family, known["default"])
    return rate


@cache
def _class(kind: str) -> tuple[float, float]:
    known = constants("kernels")["elementwise"]
    if kind not in known["classes"]:
        raise ProgramError(f"no element-wise class {kind!r}; known: {', '.join(known['classes'])}")
    return known["t0_us"] * 1e-6, known["classes"][kind]["h"]
