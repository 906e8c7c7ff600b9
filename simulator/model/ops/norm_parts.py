"""The element-wise pieces of an RMSNorm that is written op by op, all in fp32."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType, wider
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import Weight
from simulator.model.ops.plain import plain
from simulator.model.ops.pointwise import power, shift
from simulator.model.rule import Rule


def inverse_rms(b: GraphBuilder, x: int, name: str) -> tuple[int, int]:
    """rsqrt(mean(x²) + eps), one fp32 a row, and the mean."""
    shape, rows, fp32 = b.of(x).shape, _rows(b, x), DType.FP32
    size, row_size = b.bytes(x), prod(rows) * 4
    square = power(b, x, f"{name}.square")
    mean = b.value(f"{name}.mean", rows, fp32)
    rule = Rule(f"{name}.mean")
    rule.make("div", shape, fp32, value=square, read=row_size)
    kernel = Elementwise(name=f"{name}.mean", kind="copy", read=size, written=row_size)
    b.op(f"{name}.mean", "mean", (square,), (mean,), kernel, rule=rule)
    shifted = shift(b, mean, f"{name}.eps")
    return _rsqrt(b, shifted, f"{name}.rsqrt"), mean


def _rsqrt(b: GraphBuilder, x: int, name: str) -> int:
    """Keeps its result; RsqrtBackward0 makes -0.5 · grad · result³."""
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    rule = Rule(name)
    cube, half = rule.make("cube", shape, dtype), rule.make("half", shape, dtype)
    rule.make("grad", shape, dtype, value=x, read=2 * b.bytes(x))
    rule.free(half, cube)
    size = b.bytes(x)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "rsqrt", (x,), (out,), kernel, saves=(out,), rule=rule)
    return out


def scale_by(b: GraphBuilder, x: int, factor: int, name: str, *, weight: str | None = None) -> int:
    """x · factor, one factor a row or a column, in the factor's dtype: keeps both.

    MulBackward0 makes the factor's full-size product first, x's gradient (and casts it if x is
    narrower), then sums the product. ``weight``: that sum is this parameter's gradient.
    """
    shape, dtype = b.of(x).shape, b.of(factor).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name)
    target = factor if weight is None else None
    product = rule.make("product", shape, dtype, read=2 * size, toward=weight or factor)
    rule.promoted("grad_input", dtype, value=x, known=b.of(x), read=size, reads=(factor,))
    rule.settle()
    column = b.of(factor).shape
    rule.make("sum", column, dtype, value=target, weight=weight, read=size, reads=(x,))
    rule.free(product)
    kernel = Elementwise(name=name, kind="copy", read=b.bytes(x), written=size)
    b.op(name, "mul", (x, factor), (out,), kernel, saves=(x, factor), rule=rule)
    return out


def weighted_wide(b: GraphBuilder, x: int, weight: Weight, name: str) -> int:
    """fp32 x · weight (torchtitan): keeps x; the gradient is summed in fp32, then cast."""
    shape, fp32 = b.of(x).shape, DType.FP32
    out = b.value(name, shape, fp32)
    size = b.bytes(x)
    rule = Rule(name)
    product = rule.make("product", shape, fp32, read=2 * size, toward=weight.name)
    rule.make("grad_input", shape, fp32, value=x, reads=())
    total = rule.make("sum", weight.shape, fp32, read=size, toward=weight.name)
    rule.free(product)
    rule.make("grad", weight.shape, b.dtype, weight=weight.name)
    rule.free(total)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "mul", (x,), (out,), kernel, saves=(x,), rule=rule)
    return out


def weighted(b: GraphBuilder, x: int, weight: Weight, name: str) -> int:
    """weight · x in the wider dtype (Hugging Face): keeps x, whose gradient comes first.

    The weight's is summed in that dtype, then cast.
    """
    known, own = b.of(x), weight.dtype or b.dtype
    shape, dtype = known.shape, wider(known.dtype, own)
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name)
    rule.promoted("grad_input", dtype, value=x, known=known, read=size, reads=())
    product = rule.make("product", shape, dtype, read=size + b.bytes(x), toward=weight.name)
    summed = None
    if dtype is own:
        rule.make("weight.grad", weight.shape, dtype, weight=weight.name, read=size)
    else:
        summed = rule.make("weight.sum", weight.shape, dtype, read=size, toward=weight.name)
    rule.free(product)
    if summed is not None:
        rule.make("weight.grad", weight.shape, own, weight=weight.name, read=4 * weight.numel)
        rule.free(summed)
    rule.settle()
    kernel = Elementwise(name=name, kind="copy", read=b.bytes(x), written=size)
    b.op(name, "mul", (x,), (out,), kernel, saves=(x,), rule=rule)
    return out


def weighted_by_one_plus(b: GraphBuilder, x: int, weight: Weight, name: str) -> int:
    """fp32 x · (1 + weight.float()) (Gemma): keeps x and the sum, a small fp32 tensor.

    The gradient is cast back to the weight's dtype; an fp32 weight is read itself, and its
    gradient is what the product's node has summed.
    """
    fp32, label = DType.FP32, f"{name}.weight.float"
    size = weight.numel * 4
    if b.dtype is fp32:
        factor = plain(b, f"{name}.plus_one", weight.shape, fp32)
        return scale_by(b, x, factor, f"{name}.weighted", weight=weight.name)
    wide = b.value(label, weight.shape, fp32)
    rule = Rule(label)
    rule.make("weight.grad", weight.shape, b.dtype, weight=weight.name, read=size)
    kernel = Elementwise(name=label, kind="copy", read=size // 2, written=size)
    b.op(label, "cast", (), (wide,), kernel, rule=rule)
    return scale_by(b, x, shift(b, wide, f"{name}.plus_one"), f"{name}.weighted")


def _rows(b: GraphBuilder, x: int) -> tuple[int, ...]:
    return (*b.of(x).shape[:-1], 1)
