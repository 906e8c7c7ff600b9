"""Products of many experts in one launch: ``functional.grouped_mm`` (aten::_grouped_mm)."""

from __future__ import annotations

from functools import partial
from math import prod

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.kernels import Gemm, GroupedGemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor
from simulator.model.rule import Rule

ALIGNMENT = 16
"""Bytes that a row of each operand must be a multiple of (ATen/native/GroupedMMUtils.h)."""


def balanced(rows: int, experts: int) -> tuple[tuple[int, int], ...]:
    """(experts, rows of each) of perfectly even routing; what is left over goes to the first.

    Experts without a row are left out.

    >>> balanced(11, 4)
    ((3, 3), (1, 2))
    >>> balanced(2, 4)
    ((2, 1),)
    """
    each, more = divmod(rows, experts)
    parts = ((more, each + 1), (experts - more, each))
    return tuple(part for part in parts if prod(part))


def grouped_linear(
    b: GraphBuilder,
    x: int,
    offsets: int,
    name: str,
    out_features: int,
    *,
    routed: int,
    transposed: bool = False,
) -> int:
    """y[1, r, out] = x[1, r, in] · W[e][out, in]ᵀ, rows sorted by expert. Keeps x and ``offsets``.

    ``routed``: experts a token is sent to. ``transposed``: W[e] is stored [in, out]. Backward makes
    the weight's gradient first, all experts at once.

    Raises:
        UnsupportedError: rows that the kernel cannot read.
    """
    source = b.of(x)
    experts, width = b.of(offsets).shape[0], source.shape[-1]
    _check_rows(name, source.dtype.itemsize, (width, out_features))
    stored = (width, out_features) if transposed else (out_features, width)
    weight = b.weight(name, (experts, *stored), routed=routed)
    parts = balanced(prod(source.shape[:-1]), experts)
    kernel = partial(_kernel, name, parts, source.dtype, {"out": out_features, "in": width})
    y = b.value(f"{name}.out", (*source.shape[:-1], out_features), source.dtype)
    rule = Rule(name)
    dtype = source.dtype
    made = GradTensor(
        name=f"{name}.grad",
        shape=weight.shape,
        dtype=dtype,
        weight=weight.name,
        reads=(x, offsets),
    )
    rule.launch(kernel(".wgrad", ("out", "in", "rows")), made)
    made = GradTensor(
        name=f"{name}.grad_input", shape=source.shape, dtype=dtype, value=x, reads=(offsets,)
    )
    rule.launch(kernel(".dgrad", ("rows", "in", "out")), made)
    forward = kernel("", ("rows", "out", "in"))
    b.op(name, "grouped_mm", (x, offsets), (y,), forward, saves=(x, offsets), rule=rule)
    return y


def _kernel(
    name: str,
    parts: tuple[tuple[int, int], ...],
    dtype: DType,
    features: dict[str, int],
    suffix: str,
    order: tuple[str, str, str],
) -> GroupedGemm:
    """``order``: which of rows, ``in`` and ``out`` features are m, n and k."""
    found = []
    for count, rows in parts:
        sizes = {"rows": rows, **features}
        m, n, k = (sizes[each] for each in order)
        found.append(Gemm(name=name, m=m, n=n, k=k, dtype=dtype, batch=count))
    return GroupedGemm(name=f"{name}{suffix}", parts=tuple(found))


def _check_rows(name: str, itemsize: int, widths: tuple[int, ...]) -> None:
    for width in widths:
        if width * itemsize % ALIGNMENT:
            raise UnsupportedError(
                f"{name}: grouped_mm needs rows of a multiple of {ALIGNMENT} bytes, and {width} "
                "features make none; experts_implementation: eager runs them one by one",
                key="model.experts_implementation",
            )
