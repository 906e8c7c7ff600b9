"""Element-wise ops that PyTorch differentiates one by one: what each node keeps and makes."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType, wider
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.ops.autocast import in_fp32
from simulator.model.rule import Rule


def scale(b: GraphBuilder, x: int, name: str) -> int:
    """x times or divided by a number: keeps nothing."""
    return _map(b, x, name, "scale", "copy")


def tanh(b: GraphBuilder, x: int, name: str) -> int:
    """Keeps its result."""
    return _map(b, x, name, "tanh", "activation", keeps="result")


def sigmoid(b: GraphBuilder, x: int, name: str) -> int:
    """Keeps its result."""
    return _map(b, x, name, "sigmoid", "activation", keeps="result")


def relu(b: GraphBuilder, x: int, name: str) -> int:
    """Keeps its result."""
    return _map(b, x, name, "relu", "activation", keeps="result")


def gelu(b: GraphBuilder, x: int, name: str) -> int:
    """aten::gelu, erf or tanh: keeps x."""
    return _map(b, x, name, "gelu", "activation", keeps="input")


def _map(b: GraphBuilder, x: int, name: str, op: str, kind: str, *, keeps: str = "") -> int:
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name, kind)
    rule.make("grad", shape, dtype, value=x, read=2 * size if keeps else size)
    kernel = Elementwise(name=name, kind=kind, read=size, written=size)
    saves = {"": (), "input": (x,), "result": (out,)}[keeps]
    b.op(name, op, (x,), (out,), kernel, saves=saves, rule=rule)
    return out


def clamp(b: GraphBuilder, x: int, name: str, *, bounds: int) -> int:
    """x cut at one bound or two: keeps x; backward compares anew and writes zeros elsewhere."""
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name, "activation")
    zero = rule.make("zero", (1,), dtype, read=0)
    inside = [rule.make(f"bound_{n}", shape, DType.BOOL, read=size) for n in range(bounds)]
    rule.make("grad", shape, dtype, value=x, read=size + prod(shape))
    rule.free(zero, *inside)
    kernel = Elementwise(name=name, kind="activation", read=size, written=size)
    b.op(name, "clamp", (x,), (out,), kernel, saves=(x,), rule=rule)
    return out


def shift(b: GraphBuilder, x: int, name: str) -> int:
    """x plus a number: hands the gradient itself on."""
    out = b.value(name, b.of(x).shape, b.of(x).dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "add", (x,), (out,), kernel, passes=(x,))
    return out


def power(b: GraphBuilder, x: int, name: str) -> int:
    """x to a constant, in fp32 under autocast.

    PowBackward0 makes grad · (exponent · x.pow(exponent - 1)).
    """
    x = in_fp32(b, x, f"{name}.input")
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name)
    lower, scaled = rule.make("pow", shape, dtype), rule.make("scaled", shape, dtype)
    rule.make("grad", shape, dtype, value=x, read=2 * size)
    rule.free(scaled, lower)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "pow", (x,), (out,), kernel, saves=(x,), rule=rule)
    return out


def dropout(b: GraphBuilder, x: int, name: str, probability: float) -> int:
    """aten::native_dropout: keeps a mask of one byte an element; nothing at probability 0."""
    if not probability:
        return x
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    mask = b.value(f"{name}.mask", shape, DType.BOOL)
    size, mask_size = b.bytes(out), b.bytes(mask)
    rule = Rule(name)
    rule.make("grad", shape, dtype, value=x, read=size + mask_size)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size + mask_size)
    b.op(name, "dropout", (x,), (out, mask), kernel, saves=(mask,), rule=rule)
    return out


def times_table(b: GraphBuilder, x: int, table: int, name: str) -> int:
    """x · table, broadcast, in the wider dtype; the table needs no gradient, and is kept alone."""
    known, dtype = b.of(x), wider(b.of(x).dtype, b.of(table).dtype)
    out = b.value(name, known.shape, dtype)
    size = b.bytes(out)
    rule = Rule(name, "rope")
    read = size + b.bytes(table)
    rule.promoted("grad", dtype, value=x, known=known, read=read, reads=(table,))
    rule.settle()
    kernel = Elementwise(name=name, kind="rope", read=b.bytes(x) + b.bytes(table), written=size)
    b.op(name, "mul", (x, table), (out,), kernel, saves=(table,), rule=rule)
    return out


def plus_table(b: GraphBuilder, x: int, table: int, name: str) -> int:
    """x + table, broadcast, in the wider dtype: a cast of the gradient if that is not x's."""
    known, dtype = b.of(x), wider(b.of(x).dtype, b.of(table).dtype)
    out = b.value(name, known.shape, dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=b.bytes(x) + b.bytes(table), written=size)
    if dtype is known.dtype:
        b.op(name, "add", (x, table), (out,), kernel, passes=(x,))
        return out
    rule = Rule(name)
    rule.make("cast", known.shape, known.dtype, value=x, read=size)
    b.op(name, "add", (x, table), (out,), kernel, rule=rule)
    return out


def masked_fill(b: GraphBuilder, x: int, mask: int, name: str) -> int:
    """x where the mask is false, else a number: keeps the mask."""
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name)
    rule.make("grad", shape, dtype, value=x, read=size + b.bytes(mask))
    kernel = Elementwise(name=name, kind="copy", read=size + b.bytes(mask), written=size)
    b.op(name, "masked_fill", (x, mask), (out,), kernel, saves=(mask,), rule=rule)
    return out


def add_rows(b: GraphBuilder, x: int, row: int, name: str) -> int:
    """x[b, ...] + row[1, ...]: the gradient of the row is summed over the batch."""
    known = b.of(x)
    out = b.value(name, known.shape, known.dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=size + b.bytes(row), written=size)
    if b.of(row).shape == known.shape:
        b.op(name, "add", (x, row), (out,), kernel, passes=(x, row))
        return out
    rule = Rule(name)
    rule.make("sum", b.of(row).shape, known.dtype, value=row, read=size)
    b.op(name, "add", (x, row), (out,), kernel, passes=(x,), rule=rule)
    return out
