"""Low-rank adapters beside a linear (arXiv:2106.09685), as peft writes them."""

from __future__ import annotations

from simulator.fine_tuning import Adapters
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import Weight
from simulator.model.ops.dora import Beside, with_magnitude
from simulator.model.ops.elementwise import add, cast
from simulator.model.ops.pointwise import dropout, scale


def adapter_weight(
    b: GraphBuilder, name: str, shape: tuple[int, int], adapters: Adapters
) -> Weight:
    """A or B: always trained, in a dtype of its own."""
    return b.weight(f"{name}.weight", shape, trainable=True, dtype=adapters.dtype)


def with_adapters(b: GraphBuilder, x: int, y: int, adapters: Adapters, beside: Beside) -> int:
    """y + B(A(dropout(x))) · scaling, in the adapters' dtype, then cast to y's.

    x is cast first, and both live until the module returns; A keeps its input, B the [b, s, rank]
    between them. Source: peft 0.21 tuners/lora/layer.py, ``Linear.forward``.
    """
    name, dtype = beside.name, adapters.reads or adapters.dtype or b.dtype
    with b.frame() as frame:
        wide = cast(b, x, dtype, f"{name}.lora.input")
        if wide != x:
            frame.bind(wide, x)
        dropped = dropout(b, wide, f"{name}.lora.dropout", adapters.dropout)
        if adapters.dora:
            delta = with_magnitude(b, dropped, y, adapters, beside)
        else:
            delta = scale(b, beside.delta(dropped), f"{name}.lora.scaled")
        total = _sum(b, y, delta, f"{name}.lora.sum")
        return cast(b, total, b.of(y).dtype, f"{name}.lora.out")


def beside_packed(b: GraphBuilder, x: int, y: int, adapters: Adapters, beside: Beside) -> int:
    """The same beside a 4-bit weight: y is cloned first; under autocast x is left to it.

    Source: peft 0.21 tuners/lora/bnb.py, ``Linear4bit.forward``.
    """
    name = beside.name
    kept = _clone(b, y, f"{name}.lora.clone")
    own, out = adapters.reads or adapters.dtype or b.dtype, b.of(y).dtype
    with b.frame() as frame:
        wide = x if b.autocast else cast(b, x, own, f"{name}.lora.input")
        if wide != x:
            frame.bind(wide, x)
        dropped = dropout(b, wide, f"{name}.lora.dropout", adapters.dropout)
        delta = scale(b, beside.delta(dropped), f"{name}.lora.scaled")
        if not b.autocast:
            delta = cast(b, delta, out, f"{name}.lora.out")
        return _sum(b, kept, delta, f"{name}.lora.sum")


def _clone(b: GraphBuilder, x: int, name: str) -> int:
    known, size = b.of(x), b.bytes(x)
    out = b.value(name, known.shape, known.dtype)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "copy", (x,), (out,), kernel, passes=(x,))
    return out


def _sum(b: GraphBuilder, y: int, delta: int, name: str) -> int:
    """y + delta in the wider dtype of both."""
    wider = b.of(delta).dtype.itemsize > b.of(y).dtype.itemsize
    return add(b, delta, y, name) if wider else add(b, y, delta, name)
