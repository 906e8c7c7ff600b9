"""A linear over a frozen 4-bit weight, as bitsandbytes runs it.

The weight is made whole in 16 bits for each product, forward and backward, and dropped at once;
neither it nor the input is kept. Source: bitsandbytes 0.50 autograd/_functions.py ``MatMul4Bit``,
backends/cuda/ops.py ``_dequant_linear_fallback``, functional.py ``dequantize_4bit``. Products of
up to 1,536 rows may run fused there, without the whole weight; here all make it.
"""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.fine_tuning import BLOCK, Nf4
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor, Weight
from simulator.model.ops.elementwise import cast
from simulator.model.ops.plain import plain
from simulator.model.rule import Rule


def nf4_product(
    b: GraphBuilder, x: int, name: str, weight: Weight, nf4: Nf4, shape: tuple[int, ...]
) -> int:
    """x · Wᵀ in 16 bits, seen in ``shape``, cast to x's dtype (``Linear4bit.forward``)."""
    dtype = b.autocast or (b.dtype if b.dtype.itemsize == 2 else DType.BF16)
    with b.frame() as frame:
        source = cast(b, x, dtype, f"{name}.input")
        if source != x:
            frame.bind(source)
        y = _product(b, source, name, weight, nf4, shape)
        return cast(b, y, b.of(x).dtype, f"{name}.cast")


def _product(
    b: GraphBuilder, x: int, name: str, weight: Weight, nf4: Nf4, shape: tuple[int, ...]
) -> int:
    """With double quantisation the blocks' scales are made first, then shifted into a copy."""
    dtype, blocks = b.of(x).dtype, (weight.numel // BLOCK,)
    with b.frame() as frame:
        if nf4.double_quant:
            scales = plain(b, f"{name}.absmax", blocks, DType.FP32)
            frame.bind(scales, plain(b, f"{name}.absmax.shifted", blocks, DType.FP32, (scales,)))
        whole = b.value(f"{name}.weight.whole", weight.shape, dtype)
        b.op(f"{name}.dequantize", "plain", (), (whole,), _dequantize(name, weight, dtype))
        frame.bind(whole)
        y = b.value(f"{name}.out", shape, dtype)
        out_features, in_features = weight.shape
        tokens = prod(b.of(x).shape) // in_features
        kernel = Gemm(name=name, m=tokens, n=out_features, k=in_features, dtype=dtype)
        b.op(name, "mm", (x, whole), (y,), kernel, rule=_backward(b, x, name, weight, nf4))
    return y


def _backward(b: GraphBuilder, x: int, name: str, weight: Weight, nf4: Nf4) -> Rule:
    """The weight is made whole again for the input's gradient; the scales are shifted in place."""
    known, (out_features, in_features) = b.of(x), weight.shape
    tokens = prod(known.shape) // in_features
    rule = Rule(name)
    made = []
    if nf4.double_quant:
        made.append(rule.make("absmax", (weight.numel // BLOCK,), DType.FP32))
    whole = GradTensor(name=f"{name}.weight.whole", shape=weight.shape, dtype=known.dtype)
    number = rule.launch(_dequantize(name, weight, known.dtype), whole)
    rule.free(*made)
    rule.launch(
        Gemm(name=f"{name}.dgrad", m=tokens, n=in_features, k=out_features, dtype=known.dtype),
        GradTensor(
            name=f"{name}.grad_input", shape=known.shape, dtype=known.dtype, value=x, reads=()
        ),
    )
    rule.free(number)
    return rule


def _dequantize(name: str, weight: Weight, dtype: DType) -> Elementwise:
    """Half a byte and a block's share of its fp32 scale in, one element out."""
    read = weight.numel // 2 + 4 * weight.numel // BLOCK
    written = weight.numel * dtype.itemsize
    return Elementwise(name=f"{name}.dequantize", kind="copy", read=read, written=written)
