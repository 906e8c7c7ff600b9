"""A linear in float8 with dynamic tensorwise scales, as torchao writes it without compilation.

Input, incoming gradient and weight, unless it comes in float8, are cast each time they are
multiplied; the node keeps the input in its own dtype, as a linear in 16 bits does. Source:
torchao 0.18 float8/float8_linear.py ``matmul_with_hp_or_float8_args``, float8_utils.py,
float8_ops.py ``preprocess_addmm``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor, Weight
from simulator.model.ops.autocast import in_16_bits
from simulator.model.ops.compiled_float8 import compiled_float8_product
from simulator.model.rule import Rule

_SCALE = ("float64", "clamped", "reciprocal", "product", "scale")
"""From the largest magnitude to the scale (``amax_to_scale``), one number each."""


def float8_linear(
    b: GraphBuilder, x: int, name: str, weight: Weight, shape: tuple[int, ...], *, bias: bool
) -> int:
    """``Float8Linear.forward``: the product, in 16 bits under autocast, then the bias' own add."""
    added = b.weight(f"{name}.bias", weight.shape[:1]) if bias else None
    source = in_16_bits(b, x, f"{name}.input")
    with b.frame(x) if source != x else nullcontext():
        compiled = b.float8 is not None and b.float8.compiled
        product = compiled_float8_product if compiled else float8_product
        y = product(b, source, name, weight, shape)
        return y if added is None else _plus(b, y, name, added)


def _plus(b: GraphBuilder, y: int, name: str, bias: Weight) -> int:
    """A new tensor; the engine sums the gradient of the bias."""
    out = b.value(f"{name}.biased", b.of(y).shape, b.of(y).dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=f"{name}.add", kind="copy", read=size, written=size)
    rule = Rule(f"{name}.add")
    rule.make("bias.grad", bias.shape, b.dtype, weight=bias.name, read=size)
    rule.by_engine()
    b.op(f"{name}.add", "add", (y,), (out,), kernel, passes=(y,), rule=rule)
    return out


def float8_product(
    b: GraphBuilder, x: int, name: str, weight: Weight, shape: tuple[int, ...]
) -> int:
    """x · Wᵀ in float8, seen in ``shape``, in x's dtype; keeps x.

    To a selective policy it is the ``mm`` that the float8 tensors are called with.
    """
    known = b.of(x)
    out_features, in_features = weight.shape
    tokens = prod(known.shape) // in_features
    with b.frame() as frame:
        frame.bind(*_cast(b, f"{name}.input", known.shape, known.dtype, (x,)))
        if weight.gathered is None:
            frame.bind(*_cast(b, f"{name}.weight", weight.shape, b.dtype, ()))
        inverses = [_plain(b, f"{name}.inverse.{n}", (1,), DType.FP32) for n in (0, 1)]
        y = b.value(f"{name}.out", shape, known.dtype)
        kernel = Gemm(name=name, m=tokens, n=out_features, k=in_features, dtype=DType.FP8)
        rule = _backward(name, x, known.shape, known.dtype, weight, b.dtype)
        b.op(name, "mm", (x, *inverses), (y,), kernel, saves=(x,), rule=rule)
    return y


def _cast(
    b: GraphBuilder, name: str, shape: Sequence[int], dtype: DType, reads: tuple[int, ...]
) -> tuple[int, int]:
    """The float8 values and their scale, by ``hp_tensor_to_float8_dynamic``."""
    magnitudes = _plain(b, f"{name}.abs", shape, dtype, reads)
    with b.frame() as frame:
        largest = _plain(b, f"{name}.max", (1,), dtype, (magnitudes,), kind="max")
        steps = [largest]
        for step in _SCALE:
            wide = DType.FP32 if step == "scale" else DType.FP64
            read = steps[-2:] if step == "product" else steps[-1:]
            steps.append(_plain(b, f"{name}.{step}", (1,), wide, read))
        frame.bind(largest, steps[1])
    scale = steps[-1]
    with b.frame() as frame:
        wide_values = _plain(b, f"{name}.float", shape, DType.FP32, reads)
        scaled = _plain(b, f"{name}.scaled", shape, DType.FP32, (wide_values, scale))
        clamped = _plain(b, f"{name}.clamped_values", shape, DType.FP32, (scaled,))
        bits = _plain(b, f"{name}.float8", shape, DType.FP8, (clamped,))
        frame.bind(scaled)
    return bits, scale


def _plain(
    b: GraphBuilder,
    name: str,
    shape: Sequence[int],
    dtype: DType,
    inputs: Sequence[int] = (),
    kind: str = "plain",
) -> int:
    """One element-wise kernel's result outside autograd; it reads as many elements as it writes."""
    out = b.value(name, shape, dtype)
    read = sum(map(b.bytes, inputs)) or prod(shape) * dtype.itemsize
    kernel = Elementwise(name=name, kind="copy", read=read, written=b.bytes(out))
    b.op(name, kind, inputs, (out,), kernel)
    return out


def _backward(
    name: str, x: int, shape: tuple[int, ...], dtype: DType, weight: Weight, stored: DType
) -> Rule:
    """grad_input = grad · W, then grad_weight = gradᵀ · x; each operand is cast anew.

    ``_scaled_mm`` wants its operands row by column, so what lies otherwise is copied. Under
    autocast the engine casts the weight's gradient to the weight's dtype.
    """
    rule = Rule(name)
    out_features, in_features = weight.shape
    tokens = prod(shape) // in_features
    grad_shape = (tokens, out_features)
    held = _cast_steps(rule, "grad", grad_shape, dtype)
    if weight.gathered is None:
        held += _cast_steps(rule, "weight", weight.shape, stored)
    copied = [rule.make("weight.columns", weight.shape, DType.FP8)]
    _scaled_mm(
        rule,
        Gemm(name=f"{name}.dgrad", m=tokens, n=in_features, k=out_features, dtype=DType.FP8),
        GradTensor(name=f"{name}.grad_input", shape=shape, dtype=dtype, value=x, reads=()),
        copied,
    )
    held += _cast_steps(rule, "grad.again", grad_shape, dtype)
    held += _cast_steps(rule, "input", shape, dtype)
    copied = [
        rule.make("grad.rows", grad_shape, DType.FP8),
        rule.make("input.columns", shape, DType.FP8),
    ]
    product = Gemm(name=f"{name}.wgrad", m=out_features, n=in_features, k=tokens, dtype=DType.FP8)
    same = dtype is stored
    made = GradTensor(
        name=f"{name}.weight.grad",
        shape=weight.shape,
        dtype=dtype,
        weight=weight.name if same else None,
        toward=None if same else weight.name,
        reads=(x,),
    )
    narrow = _scaled_mm(rule, product, made, copied)
    rule.free(*held)
    if not same:
        rule.make("weight.grad.cast", weight.shape, stored, weight=weight.name, read=made.bytes)
        rule.by_engine()
        rule.free(narrow)
    return rule


def _scaled_mm(rule: Rule, kernel: Gemm, made: GradTensor, copied: Sequence[int]) -> int:
    inverses = [rule.make(f"{kernel.name}.inverse.{n}", (1,), DType.FP32) for n in (0, 1)]
    product = rule.launch(kernel, made)
    rule.free(*inverses, *copied)
    return product


def _cast_steps(rule: Rule, name: str, shape: Sequence[int], dtype: DType) -> list[int]:
    """``_cast`` within a node: the float8 values and their scale live on."""
    magnitudes = rule.make(f"{name}.abs", shape, dtype)
    largest = rule.make(f"{name}.max", (1,), dtype)
    rule.free(magnitudes)
    wide, clamped, reciprocal, product = (
        rule.make(f"{name}.{step}", (1,), DType.FP64) for step in _SCALE[:-1]
    )
    rule.free(reciprocal, clamped)
    scale = rule.make(f"{name}.scale", (1,), DType.FP32)
    rule.free(product, wide, largest)
    values = rule.make(f"{name}.float", shape, DType.FP32)
    scaled = rule.make(f"{name}.scaled", shape, DType.FP32)
    rule.free(values)
    clamped = rule.make(f"{name}.clamped_values", shape, DType.FP32)
    bits = rule.make(f"{name}.float8", shape, DType.FP8)
    rule.free(clamped, scaled)
    return [bits, scale]
