"""RMSNorm (arXiv:1910.07467), fused and op by op, and LayerNorm (arXiv:1607.06450)."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor, Weight
from simulator.model.ops.autocast import in_fp32
from simulator.model.ops.elementwise import cast
from simulator.model.ops.norm_parts import (
    inverse_rms,
    scale_by,
    weighted,
    weighted_by_one_plus,
    weighted_wide,
)
from simulator.model.rule import Rule

NORM = "layernorm"
"""What module-wise checkpointing calls a norm."""


def rms_norm(b: GraphBuilder, x: int, name: str, *, fused: bool) -> int:
    """x · rsqrt(mean(x²) + eps) · weight over the last dim."""
    weight = b.weight(f"{name}.weight", (b.of(x).shape[-1],))
    with b.part(NORM):
        return _fused(b, x, name, weight) if fused else _composite(b, x, name, weight)


def _fused(b: GraphBuilder, x: int, name: str, weight: Weight) -> int:
    """aten::_fused_rms_norm (torch >= 2.9 on CUDA): keeps x and one fp32 rstd a row."""
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(f"{name}.out", shape, dtype)
    rstd = b.value(f"{name}.rstd", (*shape[:-1], 1), DType.FP32)
    size = b.bytes(x)
    b.op(
        name,
        "rms_norm",
        (x,),
        (out, rstd),
        Elementwise(name=name, kind="norm", read=size, written=size + b.bytes(rstd)),
        saves=(x, rstd),
        gradients=(
            GradTensor(name=f"{name}.grad_input", shape=shape, dtype=dtype, value=x),
            GradTensor(
                name=f"{name}.weight.grad", shape=weight.shape, dtype=dtype, weight=weight.name
            ),
        ),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name=f"{name}.backward", kind="norm_backward", read=2 * size, written=size
                ),
                outputs=(0, 1),
            ),
        ),
    )
    return out


def _composite(b: GraphBuilder, x: int, name: str, weight: Weight) -> int:
    """The hand-written norm of torch <= 2.8: fp32 copy, pow, mean, add, rsqrt, two products, cast.

    Keeps the fp32 copy, rsqrt's result and the normalised fp32 rows.
    """
    copy = cast(b, x, DType.FP32, f"{name}.float")
    factor, _ = inverse_rms(b, copy, name)
    normed = scale_by(b, copy, factor, f"{name}.normed")
    product = weighted_wide(b, normed, weight, f"{name}.weighted")
    with b.frame(copy, factor):
        return cast(b, product, b.dtype, f"{name}.out")


def hf_rms_norm(b: GraphBuilder, x: int, name: str) -> int:
    """``LlamaRMSNorm`` and its copies in transformers: normalise in fp32, cast, then weigh.

    Keeps the fp32 copy, rsqrt's result and the normalised rows in x's dtype: 6 B an element.
    """
    weight = b.weight(f"{name}.weight", (b.of(x).shape[-1],))
    with b.part(NORM), b.frame() as frame:
        copy = cast(b, x, DType.FP32, f"{name}.float")
        factor, mean = inverse_rms(b, copy, name)
        normed = scale_by(b, copy, factor, f"{name}.normed")
        frame.bind(normed, mean)
        return weighted(b, cast(b, normed, b.of(x).dtype, f"{name}.cast"), weight, f"{name}.out")


def wide_rms_norm(b: GraphBuilder, x: int, name: str) -> int:
    """``GptOssRMSNorm``: weighed in fp32, then cast.

    Keeps the fp32 copy, rsqrt's result and the normalised fp32 rows: 8 B an element.
    """
    weight = b.weight(f"{name}.weight", (b.of(x).shape[-1],))
    with b.part(NORM), b.frame() as frame:
        copy = cast(b, x, DType.FP32, f"{name}.float")
        factor, mean = inverse_rms(b, copy, name)
        normed = scale_by(b, copy, factor, f"{name}.normed")
        frame.bind(normed, mean)
        product = weighted(b, normed, weight, f"{name}.weighted")
        return cast(b, product, b.of(x).dtype, f"{name}.out")


def gemma_rms_norm(b: GraphBuilder, x: int, name: str) -> int:
    """``Gemma2RMSNorm``: (normalised fp32 rows · (1 + weight)).type_as(x).

    Keeps the fp32 copy, the normalised fp32 rows and the widened weight: 8 B an element.
    """
    weight = b.weight(f"{name}.weight", (b.of(x).shape[-1],))
    with b.part(NORM):
        copy = cast(b, x, DType.FP32, f"{name}.float")
        factor, _ = inverse_rms(b, copy, name)
        normed = scale_by(b, copy, factor, f"{name}.normed")
        product = weighted_by_one_plus(b, normed, weight, name)
        with b.frame(product):
            return cast(b, product, b.of(x).dtype, f"{name}.out")


def layer_norm(b: GraphBuilder, x: int, name: str, *, bias: bool = True) -> int:
    """aten::native_layer_norm: keeps x and fp32 mean and rstd, one a row. Autocast: in fp32."""
    x = in_fp32(b, x, f"{name}.input")
    shape, dtype = b.of(x).shape, b.of(x).dtype
    affine = [b.weight(f"{name}.weight", shape[-1:])]
    if bias:
        affine.append(b.weight(f"{name}.bias", shape[-1:]))
    out = b.value(f"{name}.out", shape, dtype)
    rows = (*shape[:-1], 1)
    mean = b.value(f"{name}.mean", rows, DType.FP32)
    rstd = b.value(f"{name}.rstd", rows, DType.FP32)
    size = b.bytes(x)
    rule = Rule(name)
    rule.launch(
        Elementwise(name=f"{name}.backward", kind="norm_backward", read=2 * size, written=size),
        GradTensor(name=f"{name}.grad_input", shape=shape, dtype=dtype, value=x),
        *(
            GradTensor(name=f"{each.name}.grad", shape=each.shape, dtype=dtype, weight=each.name)
            for each in affine
        ),
    )
    kernel = Elementwise(name=name, kind="norm", read=size, written=size + 2 * b.bytes(rstd))
    with b.part(NORM):
        b.op(name, "layer_norm", (x,), (out, mean, rstd), kernel, saves=(x, mean, rstd), rule=rule)
    return out
