"""Seconds of a matrix product: tiles in soft waves over the SMs, or memory, whichever is longer.

For each tile a × b that a library has, with w = tiles / SMs::

    W  = 1 if w < 1 else w + phi·(ceil(w) - w)      phi: 1 hard wave quantisation, 0 none
    ea = e · min(1, (ab / (a + b)) / 85.33)^p       small tiles reuse less
    t  = t0 + max(min over tiles of W · 2ab(k + k0) / (ea · peak / SMs), bytes / (eb · HBM))

Source of form and constants: fits of microsoft/vidur's GEMM profiles; held out, by shapes of
the other model, 4-7 % on A100 and 6-7 % on H100 for m >= 1024. A curve without wave
constants is a roofline: e · peak against eb · HBM.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf
from typing import Any, NamedTuple

from simulator.dtypes import DType
from simulator.hardware.gpu import Gpu
from simulator.kernels import Gemm, GroupedGemm
from simulator.timing.constants import constants
from simulator.timing.families import lender, why_nearest

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (256, 64), (64, 256))
_REUSE_OF_256X128 = 256 * 128 / (256 + 128)
_FALLBACKS = {
    DType.FP8: (DType.BF16, DType.FP16),
    DType.BF16: (DType.FP16, DType.FP32),
    DType.FP16: (DType.BF16, DType.FP32),
}


class Rates(NamedTuple):
    """What one GPU gives one dtype: FLOP/s and bytes/s as reached, and its wave constants."""

    flops: float
    bytes: float
    t0: float
    k0: float
    phi: float
    sms: int  # 0: a roofline, without waves
    tile_efficiency: tuple[float, ...]
    multiple: int
    misaligned: float


def gemm_seconds(kernel: Gemm, gpu: Gpu) -> float:
    """Seconds of ``kernel`` alone on ``gpu``."""
    return _of(kernel, _rates_of(gpu, kernel.dtype))


def grouped_gemm_seconds(kernel: GroupedGemm, gpu: Gpu) -> float:
    """Seconds of one grouped launch alone on ``gpu``: its parts one after the other, started once.

    Each part is the batched product of its shape in the model above: no grouped kernel was
    measured for it, and tiles of different parts do not share a wave here.
    """
    rates = _rates_of(gpu, kernel.dtype)
    return rates.t0 + sum(_of(part, rates) - rates.t0 for part in kernel.parts)


def _of(kernel: Gemm, rates: Rates) -> float:
    return _seconds(kernel.m, kernel.n, kernel.k, kernel.batch, kernel.dtype.itemsize, rates)


def _rates_of(gpu: Gpu, dtype: DType) -> Rates:
    return _rates(
        gpu.family,
        dtype is DType.FP8,
        peak_flops(gpu, dtype),
        gpu.hbm_bytes_per_s,
        gpu.sms,
        gpu.power_watts / gpu.tdp_watts,
    )


def peak_flops(gpu: Gpu, dtype: DType) -> float:
    """Dense peak for ``dtype``, FLOP/s; where the GPU lacks it, of what frameworks use instead."""
    for one in (dtype, *_FALLBACKS.get(dtype, (DType.FP32,))):
        if one in gpu.peak_flops:
            return gpu.peak_flops[one]
    return max(gpu.peak_flops.values())


def misaligned(kernel: Gemm) -> bool:
    """Whether the product's sizes miss what tensor cores read at once, and it runs slower."""
    multiple: int = constants("kernels")["misaligned"]["multiple"][
        "fp8" if kernel.dtype is DType.FP8 else "16bit"
    ]
    return bool(kernel.n % multiple or kernel.k % multiple)


def curve_note(gpu: Gpu) -> str | None:
    """What a reader must know of the GEMM curve behind ``gpu``; None where it was measured well."""
    family, curve = _curve(gpu.family, "16bit")
    if family != gpu.family:
        why = why_nearest(gpu.family)
        return f"no GEMM of {gpu.family} measured: takes {family}'s curve ({why})"
    if curve["prior"]:
        return f"{family}'s GEMM curve is a prior: {curve['points']} points, {curve['source']}"
    return None


def _curve(family: str, width: str) -> tuple[str, Any]:
    """The family that lends its curve, and the curve."""
    known = constants("kernels")["gemm"]
    owner = lender(family, [one for one, widths in known.items() if width in widths])
    return owner, known[owner][width]


@lru_cache(maxsize=256)
def _rates(family: str, fp8: bool, peak: float, hbm: float, sms: int, power_ratio: float) -> Rates:
    known = constants("kernels")
    width = "fp8" if fp8 else "16bit"
    _, curve = _curve(family, width)
    waves = curve["k0"] is not None and sms > 0
    derate = min(1.0, power_ratio) ** known["power"]["exponent"]
    return Rates(
        flops=curve["e"] * derate * peak,
        bytes=curve["eb"] * hbm,
        t0=curve["t0_us"] * 1e-6,
        k0=curve["k0"] or 0,
        phi=curve["phi"] or 0.0,
        sms=sms if waves else 0,
        tile_efficiency=tuple(_reuse(a, b) ** curve["p"] for a, b in TILES) if waves else (),
        multiple=known["misaligned"]["multiple"][width],
        misaligned=known["misaligned"]["factor"],
    )


def _reuse(a: int, b: int) -> float:
    return min(1.0, a * b / (a + b) / _REUSE_OF_256X128)


@lru_cache(maxsize=65536)
def _seconds(m: int, n: int, k: int, batch: int, itemsize: int, rates: Rates) -> float:
    moved = batch * (itemsize * (m * k + k * n) + max(2, itemsize) * m * n)
    flops = 2 * batch * m * n * k
    compute = _waves(m, n, k, batch, rates) if rates.sms else flops / rates.flops
    if n % rates.multiple or k % rates.multiple:
        compute *= rates.misaligned
    return rates.t0 + max(compute, moved / rates.bytes)


def _waves(m: int, n: int, k: int, batch: int, rates: Rates) -> float:
    best = inf
    for (a, b), efficiency in zip(TILES, rates.tile_efficiency, strict=True):
        waves = batch * ceil(m / a) * ceil(n / b) / rates.sms
        soft = 1.0 if waves < 1 else waves + rates.phi * (ceil(waves) - waves)
        best = min(best, soft * a * b / efficiency)
    return best * 2 * (k + rates.k0) * rates.sms / rates.flops
