"""Element-wise ops: residual add, product, SiLU, casts."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.rule import Rule


def add(b: GraphBuilder, x: int, y: int, name: str) -> int:
    """x + y of equal shapes: keeps nothing, hands the gradient itself to both.

    A narrower y is promoted to x's dtype, and gets the gradient cast to its own.
    """
    shape, dtype, narrow = b.of(x).shape, b.of(x).dtype, b.of(y).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=size + b.bytes(y), written=size)
    if narrow is dtype:
        b.op(name, "add", (x, y), (out,), kernel, passes=(x, y))
        return out
    rule = Rule(name)
    rule.make("grad_other", shape, narrow, value=y, read=size)
    b.op(name, "add", (x, y), (out,), kernel, passes=(x,), rule=rule)
    return out


def mul(b: GraphBuilder, x: int, y: int, name: str) -> int:
    """x · y of equal shapes: keeps both; backward computes ``other``'s gradient first."""
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    grad = Elementwise(name=f"{name}.backward", kind="activation", read=2 * size, written=size)
    b.op(
        name,
        "mul",
        (x, y),
        (out,),
        Elementwise(name=name, kind="activation", read=2 * size, written=size),
        saves=(x, y),
        gradients=(
            GradTensor(name=f"{name}.grad_other", shape=shape, dtype=dtype, value=y, reads=(x,)),
            GradTensor(name=f"{name}.grad_self", shape=shape, dtype=dtype, value=x, reads=(y,)),
        ),
        backward=(BackwardStep(kernel=grad, outputs=(0,)), BackwardStep(kernel=grad, outputs=(1,))),
    )
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
