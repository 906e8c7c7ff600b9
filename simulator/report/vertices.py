"""The words for what clusters are made of."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.hardware.gpu import Gpu
from simulator.units import format_bytes, format_flops, format_rate

WORDS = {
    "node": ("node", "nodes"),
    "gpu": ("GPU", "GPUs"),
    "nic": ("NIC", "NICs"),
    "nvswitch": ("NVSwitch", "NVSwitches"),
    "pcie": ("PCIe switch", "PCIe switches"),
    "cpu": ("CPU", "CPUs"),
    "host": ("host memory", "host memories"),
    "leaf": ("leaf", "leaves"),
    "spine": ("spine", "spines"),
}
"""One and many, by kind of vertex."""


def counted(number: int, kind: str) -> str:
    """``number`` of a kind of vertex in words.

    >>> counted(1, "leaf"), counted(2048, "leaf")
    ('1 leaf', '2,048 leaves')
    """
    return f"{number:,} {WORDS[kind][number != 1]}"


def gpu_facts(gpu: Gpu) -> list[str]:
    """What decides between GPUs: memory, its rate, the 16-bit peak, power."""
    dtype = DType.BF16 if DType.BF16 in gpu.peak_flops else DType.FP16
    short = "bf16" if dtype is DType.BF16 else "fp16"
    return [
        f"{format_bytes(gpu.usable_bytes)} usable",
        format_rate(gpu.hbm_bytes_per_s),
        f"{format_flops(gpu.peak_flops[dtype])} dense {short}",
        f"{gpu.power_watts:g} W",
    ]
