"""RMSNorm (arXiv:1910.07467), fused and composite."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor, Weight
from simulator.model.ops.elementwise import cast


def rms_norm(b: GraphBuilder, x: int, name: str, *, fused: bool) -> int:
    """x · rsqrt(mean(x²) + eps) · weight over the last dim."""
    weight = b.weight(f"{name}.weight", (b.of(x).shape[-1],))
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
    scale = _inverse_rms(b, copy, name)
    normed = _scale_rows(b, copy, scale, name)
    weighted = _scale_columns(b, normed, weight, name)
    with b.frame(copy, scale):
        out = cast(b, weighted, b.dtype, f"{name}.out")
    return out


def _rows(b: GraphBuilder, x: int) -> tuple[int, ...]:
    return (*b.of(x).shape[:-1], 1)


def _inverse_rms(b: GraphBuilder, x: int, name: str) -> int:
    """rsqrt(mean(x²) + eps), one fp32 a row."""
    mean = _mean(b, _square(b, x, name), _rows(b, x), name)
    size = b.bytes(mean)
    shifted = b.value(f"{name}.eps", b.of(mean).shape, DType.FP32)
    small = Elementwise(name=f"{name}.add_eps", kind="copy", read=size, written=size)
    b.op(f"{name}.add_eps", "add", (mean,), (shifted,), small, passes=(mean,))
    return _rsqrt(b, shifted, name)


def _square(b: GraphBuilder, x: int, name: str) -> int:
    """x.pow(2): keeps x; PowBackward0 is grad · (exponent · x.pow(exponent - 1))."""
    shape, size = b.of(x).shape, b.bytes(x)
    out = b.value(f"{name}.square", shape, DType.FP32)
    once = Elementwise(name=f"{name}.pow", kind="copy", read=size, written=size)
    twice = Elementwise(name=f"{name}.pow.backward", kind="copy", read=2 * size, written=size)
    b.op(
        f"{name}.pow",
        "pow",
        (x,),
        (out,),
        once,
        saves=(x,),
        gradients=tuple(
            GradTensor(name=f"{name}.{temp}", shape=shape, dtype=DType.FP32, value=value)
            for temp, value in (("pow", None), ("scaled", None), ("grad_input", x))
        ),
        backward=(
            BackwardStep(kernel=once, outputs=(0,)),
            BackwardStep(kernel=once, outputs=(1,)),
            BackwardStep(kernel=twice, outputs=(2,), frees=(1, 0)),
        ),
    )
    return out


def _mean(b: GraphBuilder, x: int, rows: tuple[int, ...], name: str) -> int:
    """The mean of each row: keeps nothing; backward divides the expanded gradient."""
    shape, size, row_size = b.of(x).shape, b.bytes(x), prod(rows) * 4
    out = b.value(f"{name}.mean", rows, DType.FP32)
    back = Elementwise(name=f"{name}.mean.backward", kind="copy", read=row_size, written=size)
    b.op(
        f"{name}.mean",
        "mean",
        (x,),
        (out,),
        Elementwise(name=f"{name}.mean", kind="copy", read=size, written=row_size),
        gradients=(GradTensor(name=f"{name}.div", shape=shape, dtype=DType.FP32, value=x),),
        backward=(BackwardStep(kernel=back, outputs=(0,)),),
    )
    return out


def _rsqrt(b: GraphBuilder, x: int, name: str) -> int:
    """x.rsqrt(): keeps its result; RsqrtBackward0 is -0.5 · grad · result³."""
    rows, size = b.of(x).shape, b.bytes(x)
    out = b.value(f"{name}.rsqrt", rows, DType.FP32)
    small = Elementwise(name=f"{name}.rsqrt", kind="copy", read=size, written=size)
    b.op(
        f"{name}.rsqrt",
        "rsqrt",
        (x,),
        (out,),
        small,
        saves=(out,),
        gradients=tuple(
            GradTensor(name=f"{name}.rsqrt.{temp}", shape=rows, dtype=DType.FP32, value=value)
            for temp, value in (("cube", None), ("half", None), ("grad", x))
        ),
        backward=(
            BackwardStep(kernel=small, outputs=(0,)),
            BackwardStep(kernel=small, outputs=(1,)),
            BackwardStep(kernel=small, outputs=(2,), frees=(1, 0)),
        ),
    )
    return out


def _scale_rows(b: GraphBuilder, x: int, scale: int, name: str) -> int:
    """x · scale, one factor a row: keeps both; scale's gradient is summed over the row."""
    shape, fp32 = b.of(x).shape, DType.FP32
    out = b.value(f"{name}.normed", shape, fp32)
    size = b.bytes(x)
    product = Elementwise(name=f"{name}.scale", kind="copy", read=size, written=size)
    twice = Elementwise(name=f"{name}.scale.backward", kind="copy", read=2 * size, written=size)
    b.op(
        f"{name}.scale",
        "mul",
        (x, scale),
        (out,),
        product,
        saves=(x, scale),
        gradients=(
            GradTensor(name=f"{name}.scale.product", shape=shape, dtype=fp32),
            GradTensor(name=f"{name}.scale.grad_input", shape=shape, dtype=fp32, value=x),
            GradTensor(name=f"{name}.scale.grad_rows", shape=_rows(b, x), dtype=fp32, value=scale),
        ),
        backward=(
            BackwardStep(kernel=twice, outputs=(0,)),
            BackwardStep(kernel=product, outputs=(1,)),
            BackwardStep(
                kernel=Elementwise(name=f"{name}.scale.sum", kind="copy", read=size, written=0),
                outputs=(2,),
                frees=(0,),
            ),
        ),
    )
    return out


def _scale_columns(b: GraphBuilder, x: int, weight: Weight, name: str) -> int:
    """x · weight: keeps x; the weight's gradient is summed over rows and cast to its dtype."""
    shape, fp32 = b.of(x).shape, DType.FP32
    out = b.value(f"{name}.weighted", shape, fp32)
    size = b.bytes(x)
    product = Elementwise(name=f"{name}.weight", kind="copy", read=size, written=size)
    twice = Elementwise(name=f"{name}.weight.backward", kind="copy", read=2 * size, written=size)
    b.op(
        f"{name}.weight",
        "mul",
        (x,),
        (out,),
        product,
        saves=(x,),
        gradients=(
            GradTensor(name=f"{name}.weight.product", shape=shape, dtype=fp32),
            GradTensor(name=f"{name}.weight.grad_input", shape=shape, dtype=fp32, value=x),
            GradTensor(name=f"{name}.weight.sum", shape=weight.shape, dtype=fp32),
            GradTensor(
                name=f"{name}.weight.grad", shape=weight.shape, dtype=b.dtype, weight=weight.name
            ),
        ),
        backward=(
            BackwardStep(kernel=twice, outputs=(0,)),
            BackwardStep(kernel=product, outputs=(1,)),
            BackwardStep(
                kernel=Elementwise(name=f"{name}.weight.sum", kind="copy", read=size, written=0),
                outputs=(2,),
                frees=(0,),
            ),
            BackwardStep(
                kernel=Elementwise(name=f"{name}.weight.cast", kind="copy", read=0, written=0),
                outputs=(3,),
                frees=(2,),
            ),
        ),
    )
    return out
