"""Seconds of a fused attention kernel: a rate that grows with the sequence.

::

    t = t0 + F / (peak · e · s / (s + s0) · occupancy)

F counts half under a causal mask and 2.5 times in backward. Source of form and constants:
the FlashAttention and cuDNN benchmarks named in ``data/kernels.json`` (fits over five or more
lengths, 0.2-4.7 % off). Power caps are left out: these kernels draw less than a GEMM does.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log
from typing import Any, NamedTuple

from simulator.dtypes import DType
from simulator.errors import UnknownNameError
from simulator.hardware.gpu import Gpu
from simulator.kernels import Attention
from simulator.timing.constants import constants
from simulator.timing.families import lender
from simulator.timing.kernels.gemm import peak_flops


class Curve(NamedTuple):
    """Fraction ``e`` of peak that very long sequences reach; half of it is reached at ``s0``."""

    e: float
    s0: float

    def per_flop(self, seq: int) -> float:
        """Time of one FLOP, in units of the peak's."""
        return (seq + self.s0) / (self.e * seq)


class Curves(NamedTuple):
    """The measured passes of one implementation; at least one of them is there."""

    forward: Curve | None
    backward: Curve | None
    both: Curve | None
    slower: float  # against the implementation whose rows these are
    fp8: bool

    def cost(self, seq: int, backward: bool) -> float:
        """Time of one FLOP of the pass, in units of the peak's.

        Where only the sum of both passes was measured beside the forward, backward is the
        rest: 3.5 parts of FLOPs in all, 1 forward and 2.5 backward.
        """
        return self.slower * (self._backward(seq) if backward else self._forward(seq))

    def _forward(self, seq: int) -> float:
        curve = self.forward or self.both or self.backward
        assert curve is not None
        return curve.per_flop(seq)

    def _backward(self, seq: int) -> float:
        if self.backward is None and self.both is not None and self.forward is not None:
            return (3.5 * self.both.per_flop(seq) - self.forward.per_flop(seq)) / 2.5
        curve = self.backward or self.both or self.forward
        assert curve is not None
        return curve.per_flop(seq)


def attention_seconds(kernel: Attention, gpu: Gpu) -> float:
    """Seconds of ``kernel`` alone on ``gpu``."""
    fp8 = kernel.dtype is DType.FP8
    curves = _curves(
        kernel.kernel, gpu.family, kernel.head_dim, kernel.causal, kernel.backward, fp8
    )
    peak = peak_flops(gpu, kernel.dtype if curves.fp8 or not fp8 else DType.BF16)
    cost = curves.cost(min(kernel.seq_q, kernel.seq_k), kernel.backward)
    t0: float = constants("kernels")["attention"]["t0_us"]
    return t0 * 1e-6 + kernel.flops * cost / (peak * _occupancy(kernel, gpu.sms))


def _occupancy(kernel: Attention, sms: int) -> float:
    rule = constants("kernels")["attention"]["occupancy"]
    tiles = kernel.batch * kernel.heads * ceil(kernel.seq_q / rule["rows_per_tile"])
    if tiles >= sms:
        return 1.0
    return float((tiles / sms) ** rule["exponent"])


@lru_cache(maxsize=1024)
def _curves(
    implementation: str, family: str, head_dim: int, causal: bool, backward: bool, fp8: bool
) -> Curves:
    """The curves to use; 16-bit ones where fp8 has none for this pass."""
    known = constants("kernels")["attention"]
    if implementation not in known["implementations"]:
        raise UnknownNameError("attention kernel", implementation, known["implementations"])
    rule = known["implementations"][implementation]
    rows = [row for row in known["rows"] if row["kernel"] == rule["rows"]]
    wanted = ("fp8", "backward" if backward else "forward")
    width = "fp8" if fp8 and any((r["dtype"], r["pass"]) == wanted for r in rows) else "16bit"
    rows = [row for row in rows if row["dtype"] == width]
    owner = lender(family, {row["family"] for row in rows})
    rows = [row for row in rows if row["family"] == owner]
    found = {name: _nearest(rows, name, head_dim, causal) for name in _PASSES}
    return Curves(**found, slower=1 / rule["factor"], fp8=width == "fp8")


_PASSES = ("forward", "backward", "both")


def _nearest(rows: list[Any], name: str, head_dim: int, causal: bool) -> Curve | None:
    """The curve of pass ``name`` with the head dim that is nearest by ratio."""
    rows = [row for row in rows if row["pass"] == name]
    if not rows:
        return None
    row = min(rows, key=lambda row: abs(log(row["head_dim"] / head_dim)))
    return Curve(*row["causal" if causal else "full"])
