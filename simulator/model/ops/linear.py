"""Matrix products with a weight: ``nn.Linear`` and GPT-2's ``Conv1D``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import prod

from simulator.errors import UnsupportedError
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.float8 import takes_float8
from simulator.model.graph import GradTensor, Weight
from simulator.model.ops.autocast import Operand, in_16_bits, operand
from simulator.model.ops.dora import Beside
from simulator.model.ops.float8 import float8_linear
from simulator.model.ops.lora import adapter_weight, beside_packed, with_adapters
from simulator.model.ops.mm import mm
from simulator.model.ops.nf4 import nf4_product
from simulator.model.rule import Rule


def linear(
    b: GraphBuilder,
    x: int,
    name: str,
    out_features: int,
    *,
    view: Sequence[int] | None = None,
    bias: bool = False,
    tied: str = "",
    shared: Weight | None = None,
) -> int:
    """y[b, s, out] = x[b, s, in] · W[out, in]ᵀ + bias; ``view``: the shape that y is seen in.

    Dims past the second of x count as features. Keeps x. ``tied``: the embedding's parameter that
    serves as W. Adapters stand beside it where the plan's fine-tuning wants them. ``shared``: a
    parameter of the graph that serves several products.
    """
    shape = (out_features, _features(b, x))
    if shared is not None:
        return _product(b, x, name, shared, view=view, bias=bias)
    weight = b.weight(tied or f"{name}.weight", shape, tied=bool(tied))
    y = _product(b, x, name, weight, view=view, bias=bias)
    return _adapted(b, x, y, name, weight, view, bias=bias)


def conv1d(b: GraphBuilder, x: int, name: str, out_features: int) -> int:
    """x · W[in, out] + bias: aten::addmm with the weight stored the other way round."""
    weight = b.weight(f"{name}.weight", (_features(b, x), out_features))
    if weight.nf4 is not None:
        raise UnsupportedError(f"{name}: Conv1D over a 4-bit weight is not supported")
    factor = operand(b, f"{name}.weight", weight)
    source = in_16_bits(b, x, f"{name}.input")
    added = _bias(b, name, out_features)
    shape = (*b.of(x).shape[:2], out_features)
    with _argument(b, x, source):
        y = _addmm(b, source, name, factor, added, shape)
    return _adapted(b, x, y, name, weight, None, bias=True)


def _product(
    b: GraphBuilder,
    x: int,
    name: str,
    weight: Weight,
    *,
    view: Sequence[int] | None,
    bias: bool = False,
) -> int:
    shape = tuple(view or (*b.of(x).shape[:2], weight.shape[0]))
    if weight.nf4 is not None:
        if bias:
            b.weight(f"{name}.bias", weight.shape[:1])
        return nf4_product(b, x, name, weight, weight.nf4, shape)
    if b.float8 and takes_float8(weight.shape):
        return float8_linear(b, x, name, weight, shape, bias=bias)
    added = _bias(b, name, weight.shape[0]) if bias else None
    factor = operand(b, f"{name}.weight", weight)
    source = in_16_bits(b, x, f"{name}.input")
    with _argument(b, x, source):
        if added is None:
            return _mm(b, source, name, factor, shape)
        return _addmm(b, source, name, factor, added, shape)


def _argument(b: GraphBuilder, x: int, source: int) -> AbstractContextManager[object]:
    """The caller holds an argument that autocast has cast until the product returns."""
    return b.frame(x) if source != x else nullcontext()


def _bias(b: GraphBuilder, name: str, out_features: int) -> Operand:
    return operand(b, f"{name}.bias", b.weight(f"{name}.bias", (out_features,)))


def _adapted(
    b: GraphBuilder,
    x: int,
    y: int,
    name: str,
    base: Weight,
    view: Sequence[int] | None,
    *,
    bias: bool,
) -> int:
    """y, or y with what the adapters of that linear add."""
    adapters = b.adapters_of(name)
    if adapters is None:
        return y
    out_features = prod(b.of(y).shape[2:])
    down = adapter_weight(b, f"{name}.lora_A", (adapters.rank, _features(b, x)), adapters)
    up = adapter_weight(b, f"{name}.lora_B", (out_features, adapters.rank), adapters)

    def delta(x: int) -> int:
        middle = _product(b, x, f"{name}.lora_A", down, view=None)
        return _product(b, middle, f"{name}.lora_B", up, view=view)

    def again(x: int) -> int:
        return _product(b, x, f"{name}.dora.base", base, view=view)

    beside = Beside(name=name, base=base, down=down, up=up, bias=bias, delta=delta, again=again)
    join = with_adapters if base.nf4 is None else beside_packed
    return join(b, x, y, adapters, beside)


def _mm(b: GraphBuilder, x: int, name: str, factor: Operand, shape: Sequence[int]) -> int:
    """Backward allocates the weight's gradient first: MmBackward0 computes ``mat2`` first."""
    if factor.cast is not None:
        return mm(b, x, factor.cast, name, shape, saves=(x, factor.cast))
    y = b.value(f"{name}.out", shape, b.of(x).dtype)
    forward = _forward(b, x, y, name)
    rule = Rule(name)
    rule.launch(*_weight_gradient(x, factor, forward))
    rule.launch(*_input_gradient(b, x, factor, forward))
    b.op(name, "mm", (x,), (y,), forward, saves=(x,), rule=rule)
    return y


def _addmm(
    b: GraphBuilder, x: int, name: str, factor: Operand, added: Operand, shape: Sequence[int]
) -> int:
    """AddmmBackward0 computes ``mat1`` before ``mat2``; the engine then sums the bias' gradient."""
    y = b.value(f"{name}.out", shape, b.of(x).dtype)
    forward = _forward(b, x, y, name)
    rule = Rule(name)
    rule.launch(*_input_gradient(b, x, factor, forward))
    rule.launch(*_weight_gradient(x, factor, forward))
    made = added.gradient(forward.dtype, ())
    summing = Elementwise(name=made.name, kind="copy", read=b.bytes(y), written=made.bytes)
    rule.launch(summing, made)
    rule.by_engine()
    read = (x, *factor.values)
    b.op(name, "addmm", (*read, *added.values), (y,), forward, saves=read, rule=rule)
    return y


def _features(b: GraphBuilder, x: int) -> int:
    return prod(b.of(x).shape[2:])


def _forward(b: GraphBuilder, x: int, y: int, name: str) -> Gemm:
    tokens, dtype = prod(b.of(x).shape[:2]), b.of(x).dtype
    return Gemm(name=name, m=tokens, n=_features(b, y), k=_features(b, x), dtype=dtype)


def _weight_gradient(x: int, factor: Operand, forward: Gemm) -> tuple[Gemm, GradTensor]:
    m, n, k = forward.n, forward.k, forward.m
    kernel = replace(forward, name=f"{forward.name}.wgrad", m=m, n=n, k=k)
    return kernel, factor.gradient(forward.dtype, (x,))


def _input_gradient(
    b: GraphBuilder, x: int, factor: Operand, forward: Gemm
) -> tuple[Gemm, GradTensor]:
    kernel = replace(forward, name=f"{forward.name}.dgrad", n=forward.k, k=forward.n)
    made = GradTensor(
        name=f"{forward.name}.grad_input",
        shape=b.of(x).shape,
        dtype=forward.dtype,
        value=x,
        reads=factor.values,
    )
    return kernel, made


def batched_product(b: GraphBuilder, x: int, y: int, name: str, shape: Sequence[int]) -> int:
    """torch.matmul of [.., heads, m, k] and [.., heads, k, n]: aten::bmm; keeps both.

    ``shape`` = (batch, heads, m, n). BmmBackward0 makes y's gradient first.
    """
    batch, heads, m, n = shape
    left, right = b.of(x), b.of(y)
    count = batch * heads
    k = b.bytes(x) // (count * m * left.dtype.itemsize)
    out = b.value(name, shape, left.dtype)

    def kernel(suffix: str, m: int, n: int, k: int) -> Gemm:
        return Gemm(name=f"{name}{suffix}", m=m, n=n, k=k, dtype=left.dtype, batch=count)

    rule = Rule(name)
    for suffix, (own, value), other, of in (
        (".grad_mat2", (right, y), x, (k, n, m)),
        (".grad_self", (left, x), y, (m, k, n)),
    ):
        made = GradTensor(
            name=f"{name}{suffix}", shape=own.shape, dtype=own.dtype, value=value, reads=(other,)
        )
        rule.launch(kernel(suffix, *of), made)
    b.op(name, "bmm", (x, y), (out,), kernel("", m, n, k), saves=(x, y), rule=rule)
    return out
