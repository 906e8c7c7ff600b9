"""Matrix products with a weight: ``nn.Linear`` and GPT-2's ``Conv1D``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from simulator.errors import UnsupportedError
from simulator.kernels import Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.float8 import takes_float8
from simulator.model.graph import GradTensor, Weight
from simulator.model.ops.autocast import autocast_mm
from simulator.model.ops.float8 import float8_product
from simulator.model.ops.lora import adapter_weight, with_adapters
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
) -> int:
    """y[b, s, out] = x[b, s, in] · W[out, in]ᵀ + bias; ``view``: the shape that y is seen in.

    Dims past the second of x count as features. Keeps x. ``tied``: the embedding's parameter that
    serves as W. Adapters stand beside it where the plan's fine-tuning wants them.
    """
    shape = (out_features, _features(b, x))
    weight = b.weight(tied or f"{name}.weight", shape, tied=bool(tied))
    y = _product(b, x, name, weight, view=view, bias=bias)
    return _adapted(b, x, y, name, view)


def conv1d(b: GraphBuilder, x: int, name: str, out_features: int) -> int:
    """x · W[in, out] + bias: aten::addmm with the weight stored the other way round."""
    weight = b.weight(f"{name}.weight", (_features(b, x), out_features))
    if weight.nf4 is not None:
        raise UnsupportedError(f"{name}: Conv1D over a 4-bit weight is not supported")
    return _adapted(b, x, _addmm(b, x, name, weight, out_features, None), name, None)


def _product(
    b: GraphBuilder,
    x: int,
    name: str,
    weight: Weight,
    *,
    view: Sequence[int] | None,
    bias: bool = False,
) -> int:
    out_features = weight.shape[0]
    seen = tuple(view or (*b.of(x).shape[:2], out_features))
    if weight.nf4 is not None:
        if bias:
            b.weight(f"{name}.bias", (out_features,))
        return nf4_product(b, x, name, weight, weight.nf4, seen)
    if b.float8 and takes_float8(weight.shape):
        if bias or b.autocast is not None:
            raise UnsupportedError(f"{name}: a float8 linear with a bias, or under autocast")
        return float8_product(b, x, name, weight, seen)
    if b.autocast is not None:
        if bias:
            raise UnsupportedError(f"{name}: a bias under autocast is not yet supported")
        return autocast_mm(b, x, name, weight, seen, b.autocast)
    if bias:
        return _addmm(b, x, name, weight, out_features, view)
    return _mm(b, x, name, weight, out_features, view)


def _adapted(b: GraphBuilder, x: int, y: int, name: str, view: Sequence[int] | None) -> int:
    """y, or y with what the adapters of that linear add."""
    adapters = b.adapters_of(name)
    if adapters is None:
        return y

    def down(x: int) -> int:
        weight = adapter_weight(b, f"{name}.lora_A", (adapters.rank, _features(b, x)), adapters)
        return _product(b, x, f"{name}.lora_A", weight, view=None)

    def up(x: int) -> int:
        out_features = prod(b.of(y).shape[2:])
        weight = adapter_weight(b, f"{name}.lora_B", (out_features, adapters.rank), adapters)
        return _product(b, x, f"{name}.lora_B", weight, view=view)

    return with_adapters(b, x, y, name, adapters, down, up)


def _mm(
    b: GraphBuilder,
    x: int,
    name: str,
    weight: Weight,
    out_features: int,
    view: Sequence[int] | None,
) -> int:
    """Backward allocates the weight's gradient first: MmBackward0 computes ``mat2`` first."""
    source = b.of(x)
    y = b.value(f"{name}.out", view or (*source.shape[:2], out_features), source.dtype)
    rule = Rule(name)
    rule.launch(*_weight_gradient(b, x, name, weight, out_features))
    rule.launch(*_input_gradient(b, x, name, out_features))
    b.op(name, "mm", (x,), (y,), _forward(b, x, name, out_features), saves=(x,), rule=rule)
    return y


def _addmm(
    b: GraphBuilder,
    x: int,
    name: str,
    weight: Weight,
    out_features: int,
    view: Sequence[int] | None,
) -> int:
    """AddmmBackward0 computes ``mat1`` before ``mat2``; the engine then sums the bias' gradient."""
    source = b.of(x)
    bias = b.weight(f"{name}.bias", (out_features,))
    y = b.value(f"{name}.out", view or (*source.shape[:2], out_features), source.dtype)
    rule = Rule(name)
    rule.launch(*_input_gradient(b, x, name, out_features))
    rule.launch(*_weight_gradient(b, x, name, weight, out_features))
    size = b.bytes(y)
    rule.make("bias.grad", bias.shape, source.dtype, weight=bias.name, read=size, reads=())
    b.op(name, "addmm", (x,), (y,), _forward(b, x, name, out_features), saves=(x,), rule=rule)
    return y


def _features(b: GraphBuilder, x: int) -> int:
    return prod(b.of(x).shape[2:])


def _forward(b: GraphBuilder, x: int, name: str, out_features: int) -> Gemm:
    source = b.of(x)
    return Gemm(
        name=name,
        m=prod(source.shape[:2]),
        n=out_features,
        k=_features(b, x),
        dtype=source.dtype,
    )


def _weight_gradient(
    b: GraphBuilder, x: int, name: str, weight: Weight, out_features: int
) -> tuple[Gemm, GradTensor]:
    source = b.of(x)
    kernel = Gemm(
        name=f"{name}.wgrad",
        m=out_features,
        n=_features(b, x),
        k=prod(source.shape[:2]),
        dtype=source.dtype,
    )
    made = GradTensor(
        name=f"{name}.weight.grad",
        shape=weight.shape,
        dtype=source.dtype,
        weight=weight.name,
        reads=(x,),
    )
    return kernel, made


def _input_gradient(
    b: GraphBuilder, x: int, name: str, out_features: int
) -> tuple[Gemm, GradTensor]:
    source = b.of(x)
    kernel = Gemm(
        name=f"{name}.dgrad",
        m=prod(source.shape[:2]),
        n=_features(b, x),
        k=out_features,
        dtype=source.dtype,
    )
    made = GradTensor(
        name=f"{name}.grad_input", shape=source.shape, dtype=source.dtype, value=x, reads=()
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
