"""What sends tokens to experts and brings them back: top-k, gathers by index, weighted sums.

Routed rows are written [1, r, ...], r = tokens · experts a token. Where PyTorch's backward scatters
into zeros it does so in place (torch/csrc/autograd/FunctionsManual.cpp: ``index_backward`` and
``value_selecting_reduction_backward``). What the sort inside an accumulating ``index_put_`` takes
and gives back within the call is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.rule import Rule


def top_k(b: GraphBuilder, x: int, k: int, name: str) -> tuple[int, int]:
    """The k greatest of the last dim and where they stood; keeps the places."""
    known = b.of(x)
    shape = (*known.shape[:-1], k)
    values = b.value(f"{name}.values", shape, known.dtype)
    places = b.value(f"{name}.indices", shape, DType.INT64)
    rule = Rule(name, "gather")
    rule.make("grad", known.shape, known.dtype, value=x, read=b.bytes(values) + b.bytes(places))
    written = b.bytes(values) + b.bytes(places)
    kernel = Elementwise(name=name, kind="gather", read=b.bytes(x), written=written)
    b.op(name, "topk", (x,), (values, places), kernel, saves=(places,), rule=rule)
    return values, places


def total(b: GraphBuilder, x: int, name: str) -> int:
    """Sum over the last dim, which stays as one: keeps nothing, expands the gradient as a view."""
    known = b.of(x)
    out = b.value(name, (*known.shape[:-1], 1), known.dtype)
    kernel = Elementwise(name=name, kind="copy", read=b.bytes(x), written=b.bytes(out))
    b.op(name, "sum", (x,), (out,), kernel, passes=(x,))
    return out


def divide(b: GraphBuilder, x: int, divisor: int, name: str) -> int:
    """x / divisor, one a row, written ``x /= divisor``: keeps x and the divisor.

    In place: autograd clones x first and keeps the clone. Which of the two storages is the result
    makes no difference here.
    """
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(x)
    rule = Rule(name)
    names = ("quotient_0", "quotient_1", "neg")
    quotients = [rule.make(each, shape, dtype, toward=divisor) for each in names]
    summed = shape[-1] > 1
    product = rule.make(
        "product",
        shape,
        dtype,
        value=None if summed else divisor,
        read=2 * size,
        toward=divisor,
    )
    rule.free(*quotients)
    rule.make("grad_self", shape, dtype, value=x, reads=(divisor,))
    if summed:
        rule.make("sum", b.of(divisor).shape, dtype, value=divisor, read=size)
        rule.free(product)
    kernel = Elementwise(name=name, kind="copy", read=2 * size, written=2 * size)
    b.op(name, "div", (x, divisor), (out,), kernel, saves=(x, divisor), rule=rule)
    return out


def gate_rows(b: GraphBuilder, gate: int, x: int, name: str) -> int:
    """gate · x, one gate a row: keeps both; x's gradient first, then the gate's product, summed."""
    known = b.of(x)
    out = b.value(name, known.shape, known.dtype)
    size = b.bytes(out)
    rule = Rule(name)
    rule.make("grad", known.shape, known.dtype, value=x, reads=(gate,))
    product = rule.make("product", known.shape, known.dtype, read=2 * size, toward=gate)
    rule.make("sum", b.of(gate).shape, known.dtype, value=gate, read=size, reads=(x,))
    rule.free(product)
    kernel = Elementwise(name=name, kind="copy", read=size + b.bytes(gate), written=size)
    b.op(name, "mul", (gate, x), (out,), kernel, saves=(gate, x), rule=rule)
    return out


def gather(b: GraphBuilder, x: int, index: int, name: str, shape: Sequence[int]) -> int:
    """Rows of x by number: keeps the numbers; backward adds the rows up in zeros of x's size."""
    known = b.of(x)
    out = b.value(name, shape, known.dtype)
    size = b.bytes(out)
    rule = Rule(name, "gather")
    rule.make("grad", known.shape, known.dtype, value=x, read=size + b.bytes(index))
    kernel = Elementwise(name=name, kind="gather", read=size + b.bytes(index), written=size)
    b.op(name, "index", (x, index), (out,), kernel, saves=(index,), rule=rule)
    return out


def sum_choices(b: GraphBuilder, x: int, shape: Sequence[int], name: str) -> int:
    """[1, tokens · k, h] summed over the k of a token: keeps nothing.

    The expanded gradient is copied, as it cannot be viewed back; for k = 1 it can.
    """
    known = b.of(x)
    out = b.value(name, shape, known.dtype)
    size, small = b.bytes(x), b.bytes(out)
    kernel = Elementwise(name=name, kind="copy", read=size, written=small)
    if size == small:
        b.op(name, "sum", (x,), (out,), kernel, passes=(x,))
        return out
    rule = Rule(name)
    rule.make("clone", known.shape, known.dtype, value=x, read=size)
    b.op(name, "sum", (x,), (out,), kernel, rule=rule)
    return out


def sort(b: GraphBuilder, x: int, name: str) -> tuple[int, int]:
    """Whole numbers [1, r, 1] in order and where they stood."""
    return plain_pair(b, x, (1, prod(b.of(x).shape), 1), name)


def plain_pair(b: GraphBuilder, x: int, shape: Sequence[int], name: str) -> tuple[int, int]:
    """Values and int64 places of a top-k, maximum or sort that no gradient passes through."""
    values = b.value(f"{name}.values", shape, b.of(x).dtype)
    places = b.value(f"{name}.indices", shape, DType.INT64)
    written = b.bytes(values) + b.bytes(places)
    kernel = Elementwise(name=name, kind="gather", read=b.bytes(x), written=written)
    b.op(name, "plain", (x,), (values, places), kernel)
    return values, places


def inverse(b: GraphBuilder, order: int, name: str) -> int:
    """The permutation that undoes ``order``: arange scattered into an empty tensor."""
    known, size = b.of(order), b.bytes(order)
    out = b.value(name, known.shape, known.dtype)
    steps = b.value(f"{name}.arange", known.shape, known.dtype)
    for made, written in ((out, 0), (steps, size)):
        label = b.of(made).name
        kernel = Elementwise(name=label, kind="copy", read=0, written=written)
        b.op(label, "plain", (), (made,), kernel)
    scatter = Elementwise(name=f"{name}.scatter", kind="gather", read=2 * size, written=size)
    b.op(f"{name}.scatter", "plain", (out, order, steps), (), scatter)
    return out


def add_rows_at(b: GraphBuilder, x: int, rows: int, index: int, name: str) -> int:
    """``x.index_add_(0, index, rows)``, in place: keeps rows and index; x's gradient passes on."""
    out = b.alias(x, f"{name}.added")
    known, size = b.of(rows), b.bytes(rows)
    rule = Rule(name, "gather")
    rule.make("index_select", known.shape, known.dtype, value=rows, read=size + b.bytes(index))
    kernel = Elementwise(name=name, kind="gather", read=2 * size + b.bytes(index), written=size)
    inputs = (x, rows, index)
    b.op(name, "index_add", inputs, (out,), kernel, saves=(rows, index), passes=(x,), rule=rule)
    return out


def add_in_place(b: GraphBuilder, x: int, y: int, name: str) -> int:
    """``x.add_(y)`` of equal shapes: keeps nothing, hands the gradient itself to both."""
    out = b.alias(x, name)
    size = b.bytes(x)
    kernel = Elementwise(name=name, kind="copy", read=2 * size, written=size)
    b.op(name, "add_", (x, y), (out,), kernel, passes=(x, y))
    return out
