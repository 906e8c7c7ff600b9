"""Element-wise ops: residual add, product, SiLU, casts."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType, wider
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.rule import Rule


def add(b: GraphBuilder, x: int, y: int, name: str) -> int:
    """x + y of equal shapes: keeps nothing, hands the gradient itself to both.

    A narrower one is promoted to the other's dtype, and gets the gradient cast to its own.
    """
    shape, dtype = b.of(x).shape, wider(b.of(x).dtype, b.of(y).dtype)
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name)
    for value, suffix in ((x, "grad_self"), (y, "grad_other")):
        if b.of(value).dtype is not dtype:
            rule.make(suffix, shape, b.of(value).dtype, value=value, read=size)
    kernel = Elementwise(name=name, kind="copy", read=b.bytes(x) + b.bytes(y), written=size)
    passes = tuple(value for value in (x, y) if b.of(value).dtype is dtype)
    b.op(name, "add", (x, y), (out,), kernel, passes=passes, rule=rule)
    return out


def subtract(b: GraphBuilder, x: int, y: int, name: str) -> int:
    """x - y: keeps nothing, hands the gradient on to x and its negative to y.

    Where y is one a row its gradient is summed.
    """
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name)
    if b.of(y).shape == shape:
        rule.make("neg", shape, dtype, value=y)
    else:
        negative = rule.make("neg", shape, dtype, toward=y)
        rule.make("sum", b.of(y).shape, dtype, value=y, read=size)
        rule.free(negative)
    kernel = Elementwise(name=name, kind="copy", read=size + b.bytes(y), written=size)
    b.op(name, "sub", (x, y), (out,), kernel, passes=(x,), rule=rule)
    return out


def mul(b: GraphBuilder, x: int, y: int, name: str) -> int:
    """x · y of equal shapes in the wider dtype: keeps both as they are.

    Backward computes ``other``'s gradient first.
    """
    dtype = wider(b.of(x).dtype, b.of(y).dtype)
    out = b.value(name, b.of(x).shape, dtype)
    size = b.bytes(out)
    rule = Rule(name, "activation")
    for suffix, value, other in (("grad_other", y, x), ("grad_self", x, y)):
        read = size + b.bytes(other)
        rule.promoted(suffix, dtype, value=value, known=b.of(value), read=read, reads=(other,))
    rule.settle()
    kernel = Elementwise(name=name, kind="activation", read=b.bytes(x) + b.bytes(y), written=size)
    b.op(name, "mul", (x, y), (out,), kernel, saves=(x, y), rule=rule)
    return out


def silu(b: GraphBuilder, x: int, name: str) -> int:
    """x · sigmoid(x): keeps x."""
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    b.op(
        name,
        "silu",
        (x,),
        (out,),
        Elementwise(name=name, kind="activation", read=size, written=size),
        saves=(x,),
        gradients=(GradTensor(name=f"{name}.grad", shape=shape, dtype=dtype, value=x),),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name=f"{name}.backward", kind="activation", read=2 * size, written=size
                ),
                outputs=(0,),
            ),
        ),
    )
    return out


def cast(b: GraphBuilder, x: int, dtype: DType, name: str) -> int:
    """A copy in another dtype: keeps nothing; backward casts the gradient back.

    ``Tensor.to`` of the dtype that ``x`` has returns ``x`` itself.
    """
    source = b.of(x)
    if source.dtype is dtype:
        return x
    out = b.value(name, source.shape, dtype)
    numel = prod(source.shape)
    before, after = numel * source.dtype.itemsize, numel * dtype.itemsize
    b.op(
        name,
        "cast",
        (x,),
        (out,),
        Elementwise(name=name, kind="copy", read=before, written=after),
        gradients=(
            GradTensor(name=f"{name}.grad", shape=source.shape, dtype=source.dtype, value=x),
        ),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name=f"{name}.backward", kind="copy", read=after, written=before
                ),
                outputs=(0,),
            ),
        ),
    )
    return out
