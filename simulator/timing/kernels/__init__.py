"""How long one kernel takes alone on one GPU. One file a kind of kernel."""

from __future__ import annotations

from simulator.hardware.gpu import Gpu
from simulator.kernels import Attention, Gemm, GroupedGemm, Kernel
from simulator.timing.kernels.attention import attention_seconds
from simulator.timing.kernels.elementwise import elementwise_seconds
from simulator.timing.kernels.gemm import (
    curve_note,
    gemm_seconds,
    grouped_gemm_seconds,
    misaligned,
    peak_flops,
)

__all__ = ["curve_note", "kernel_seconds", "misaligned", "peak_flops"]


def kernel_seconds(kernel: Kernel, gpu: Gpu) -> float:
    """Seconds of ``kernel`` on ``gpu``, with nothing else running there."""
    if isinstance(kernel, Gemm):
        return gemm_seconds(kernel, gpu)
    if isinstance(kernel, GroupedGemm):
        return grouped_gemm_seconds(kernel, gpu)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, gpu)
    return elementwise_seconds(kernel, gpu)
