"""Views and the copies that their gradients need, concatenation, and the half turn of RoPE.

Heads are written [b, s, heads, d] whatever lies where: a kernel that returns its gradient in
another order than the projection's makes ``reshape`` in backward copy it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

from simulator.dtypes import wider
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.rule import Rule


def copied_view(b: GraphBuilder, x: int, name: str, shape: Sequence[int]) -> int:
    """A view whose gradient cannot be viewed back: it is cloned and the incoming one dropped.

    Of one head or one token it can.
    """
    if 1 in shape[1:3]:
        return b.view(x, name, shape)
    rule = Rule(name)
    rule.make("clone", b.of(x).shape, b.of(x).dtype, value=x)
    rule.drop_incoming()
    return b.view(x, name, shape, rule)


def slice_of(b: GraphBuilder, x: int, name: str, shape: Sequence[int]) -> int:
    """x[..., i:j]: slice_backward writes the gradient into zeros of x's size."""
    rule = Rule(name)
    size = prod(shape) * b.of(x).dtype.itemsize
    rule.make("slice_backward", b.of(x).shape, b.of(x).dtype, value=x, read=size)
    return b.view(x, name, shape, rule)


def select(b: GraphBuilder, x: int, name: str) -> int:
    """x[i] of the first dim: select_backward writes the gradient into zeros of x's size."""
    shape = b.of(x).shape[1:]
    rule = Rule(name)
    size = prod(shape) * b.of(x).dtype.itemsize
    rule.make("select_backward", b.of(x).shape, b.of(x).dtype, value=x, read=size)
    return b.view(x, name, shape, rule)


def split(
    b: GraphBuilder, x: int, name: str, shapes: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    """Equal or unequal pieces along the last dim: SplitBackward concatenates their gradients."""
    rule = Rule(name)
    rule.make("cat", b.of(x).shape, b.of(x).dtype, value=x)
    return b.views(x, name, shapes, rule)


def concat(b: GraphBuilder, parts: Sequence[int], name: str, shape: Sequence[int]) -> int:
    """torch.cat, in the widest part's dtype: keeps nothing.

    Each part's gradient is a view of the incoming one, or a cast of it to the part's own dtype.
    """
    dtype = reduce(wider, (b.of(part).dtype for part in parts))
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    rule = Rule(name)
    for number, part in enumerate(parts):
        if b.of(part).dtype is not dtype:
            rule.make(f"grad_{number}", b.of(part).shape, b.of(part).dtype, value=part)
    passes = [part for part in parts if b.of(part).dtype is dtype]
    b.op(name, "cat", parts, (out,), kernel, passes=passes, rule=rule)
    return out


def filled(b: GraphBuilder, parts: tuple[int, int], name: str, shape: Sequence[int]) -> int:
    """An empty tensor whose last dim is copied together from two parts, in place.

    CopySlices (torch/csrc/autograd/functions/tensor.cpp) copies the whole gradient, then clones
    the part's; what was there before gets zeros where the part went.
    """
    first, second = parts
    dtype = b.of(first).dtype
    out = b.value(name, shape, dtype)
    rule = Rule(f"{name}.first")
    whole = rule.make("base", shape, dtype, toward=first)
    rule.make("clone", b.of(first).shape, dtype, value=first)
    rule.free(whole)
    size = b.bytes(first)
    kernel = Elementwise(name=f"{name}.first", kind="copy", read=size, written=size)
    b.op(f"{name}.first", "copy", (first,), (out,), kernel, rule=rule)
    full = b.alias(out, f"{name}.filled")
    rule = Rule(f"{name}.second")
    rule.make("base", shape, dtype, value=out)
    rule.make("clone", b.of(second).shape, dtype, value=second)
    zeros = rule.make("zeros", b.of(second).shape, dtype, toward=out, read=0)
    rule.free(zeros)
    size = prod(b.of(second).shape) * dtype.itemsize
    kernel = Elementwise(name=f"{name}.second", kind="copy", read=size, written=size)
    b.op(f"{name}.second", "copy", (out, second), (full,), kernel, rule=rule)
    return full


def contiguous(b: GraphBuilder, x: int, name: str, shape: Sequence[int] | None = None) -> int:
    """A copy in another order of dims: keeps nothing, hands the gradient itself on."""
    out = b.value(name, shape or b.of(x).shape, b.of(x).dtype)
    size = b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "clone", (x,), (out,), kernel, passes=(x,))
    return out


def rotate_half(b: GraphBuilder, x: int, name: str) -> int:
    """cat(-x2, x1) of the halves of the last dim, nodes of cat, neg and both slices in one.

    Backward: the negated half, zeros of x's size for each half's gradient, and their sum.
    """
    known = b.of(x)
    half = (*known.shape[:-1], known.shape[-1] // 2)
    size = b.bytes(x)
    negated = b.value(f"{name}.neg", half, known.dtype)
    negation = Elementwise(name=f"{name}.neg", kind="rope", read=size // 2, written=size // 2)
    b.op(f"{name}.neg", "neg", (x,), (negated,), negation)
    out = b.value(name, known.shape, known.dtype)
    rule = Rule(name, "rope")
    turned = rule.make("neg", half, known.dtype)
    second = rule.make("slice_2", known.shape, known.dtype, read=size // 2)
    rule.free(turned)
    first = rule.make("slice_1", known.shape, known.dtype, read=size // 2)
    rule.drop_incoming()
    rule.make("grad", known.shape, known.dtype, value=x, read=2 * size)
    rule.free(second, first)
    kernel = Elementwise(name=name, kind="rope", read=size, written=size)
    b.op(name, "cat", (x, negated), (out,), kernel, rule=rule)
    return out
