"""Products with a weight that is a value of the graph: a parameter's cast, or a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor, Weight
from simulator.model.rule import Rule


def mm(
    b: GraphBuilder, x: int, weight: int, name: str, shape: Sequence[int], *, saves: Sequence[int]
) -> int:
    """x[b, s, in] · W[out, in]ᵀ, seen in ``shape``. Backward makes the weight's gradient first."""
    source, known = b.of(x), b.of(weight)
    tokens = prod(source.shape[:2])
    out_features, in_features = known.shape
    dtype = source.dtype
    y = b.value(f"{name}.out", shape, dtype)
    rule = Rule(name)
    rule.launch(
        Gemm(name=f"{name}.wgrad", m=out_features, n=in_features, k=tokens, dtype=dtype),
        GradTensor(
            name=f"{known.name}.grad", shape=known.shape, dtype=dtype, value=weight, reads=(x,)
        ),
    )
    rule.launch(
        Gemm(name=f"{name}.dgrad", m=tokens, n=in_features, k=out_features, dtype=dtype),
        GradTensor(
            name=f"{name}.grad_input", shape=source.shape, dtype=dtype, value=x, reads=(weight,)
        ),
    )
    kernel = Gemm(name=name, m=tokens, n=out_features, k=in_features, dtype=dtype)
    b.op(name, "mm", (x, weight), (y,), kernel, saves=saves, rule=rule)
    return y


def cast_weight(b: GraphBuilder, name: str, weight: Weight, to: DType) -> int:
    """A weight in another dtype; its gradient is cast back to the weight's."""
    stored = weight.dtype or b.dtype
    out = b.value(f"{name}.cast", weight.shape, to)
    before, after = weight.numel * stored.itemsize, b.bytes(out)
    rule = Rule(name)
    rule.make("grad", weight.shape, stored, weight=weight.name, read=after)
    kernel = Elementwise(name=f"{name}.cast", kind="copy", read=before, written=after)
    b.op(f"{name}.cast", "cast", (), (out,), kernel, rule=rule)
    return out
