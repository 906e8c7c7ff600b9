"""A float8 linear as ``torch.compile`` sees it: casts are fused, and equal ones are made once.

What backward reads of an operand is its float8 copy in columns, as ``_scaled_mm`` wants it; nothing
in forward reads that copy, so it is made again from what is there, or waits if that is cheaper.
Source: AOTAutograd's trace of torchao 0.18 float8/float8_linear.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor, Weight
from simulator.model.rule import Rule

WEIGHT_CAST = "weight_cast"
"""Kind of an op that reads a parameter and nothing else."""


def compiled_float8_product(
    b: GraphBuilder, x: int, name: str, weight: Weight, shape: tuple[int, ...]
) -> int:
    """x · Wᵀ in float8, seen in ``shape``, in x's dtype; keeps columns of x and of W."""
    known = b.of(x)
    out_features, in_features = weight.shape
    tokens = prod(known.shape) // in_features
    bits, columns = _input_casts(b, x, tokens)
    read, weight_columns = _weight_casts(b, name, weight)
    y = b.value(f"{name}.out", shape, known.dtype)
    rule = Rule(name)
    rule.launch(
        Gemm(name=f"{name}.dgrad", m=tokens, n=in_features, k=out_features, dtype=DType.FP8),
        GradTensor(
            name=f"{name}.grad_input",
            shape=known.shape,
            dtype=known.dtype,
            value=x,
            reads=(weight_columns,),
        ),
    )
    rule.launch(
        Gemm(name=f"{name}.wgrad", m=out_features, n=in_features, k=tokens, dtype=DType.FP8),
        GradTensor(
            name=f"{name}.weight.grad",
            shape=weight.shape,
            dtype=known.dtype,
            weight=weight.name,
            reads=(columns,),
        ),
    )
    kernel = Gemm(name=name, m=tokens, n=out_features, k=in_features, dtype=DType.FP8)
    kept = (columns, weight_columns)
    b.op(name, "mm", (bits, *read), (y,), kernel, saves=kept, rule=rule)
    return y


def _input_casts(b: GraphBuilder, x: int, tokens: int) -> tuple[int, ...]:
    """Rows and columns of x in float8, once for all linears that read x."""
    if x not in b.cast_already:
        known, name = b.of(x), f"{b.of(x).name}.float8"
        rows = tokens if _rowwise(b) else 1
        size = b.bytes(x)
        largest = _op(b, f"{name}.max", "max", (x,), (rows,), known.dtype, size)
        bits = _op(b, name, "plain", (x, largest), known.shape, DType.FP8, size)
        if _rowwise(b):
            width = (prod(known.shape) // tokens,)
            largest = _op(b, f"{name}.column_max", "max", (x,), width, known.dtype, size)
        columns = _op(b, f"{name}.columns", "plain", (x, largest), known.shape, DType.FP8, size)
        b.cast_already[x] = (bits, columns)
    return b.cast_already[x]


def _weight_casts(b: GraphBuilder, name: str, weight: Weight) -> tuple[tuple[int, ...], int]:
    """What the product reads of a weight beside the parameter, and its columns for backward."""
    name, size = f"{name}.weight.float8", weight.numel * b.dtype.itemsize
    if weight.gathered is not None:
        made = _op(b, f"{name}.columns", WEIGHT_CAST, (), weight.shape, DType.FP8, weight.numel)
        return (), made
    rows, columns = weight.shape if _rowwise(b) else (1, 1)
    largest = _op(b, f"{name}.max", "max", (), (rows,), b.dtype, size)
    bits = _op(b, name, WEIGHT_CAST, (largest,), weight.shape, DType.FP8, size)
    if _rowwise(b):
        largest = _op(b, f"{name}.column_max", "max", (), (columns,), b.dtype, size)
    made = _op(b, f"{name}.columns", WEIGHT_CAST, (largest,), weight.shape, DType.FP8, size)
    return (bits,), made


def _rowwise(b: GraphBuilder) -> bool:
    return b.float8 is not None and b.float8.rowwise


def _op(
    b: GraphBuilder,
    name: str,
    kind: str,
    inputs: Sequence[int],
    shape: Sequence[int],
    dtype: DType,
    read: int,
) -> int:
    """One element-wise result outside autograd; ``read``: bytes of what is cast."""
    out = b.value(name, shape, dtype)
    kernel = Elementwise(name=name, kind="copy", read=read, written=b.bytes(out))
    b.op(name, kind, inputs, (out,), kernel)
    return out
