"""Issuing the ops of a graph: in forward, and when a checkpoint runs it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.kernels import Elementwise
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Graph, Op, Value
from simulator.program.instructions import Category, Tensor

Code = Callable[[], None]

Inner = Mapping[int, tuple[Code, Code]]
"""By op that is a module which the framework hooks: what comes before it, and what after."""


def issue(
    w: BlockWriter,
    graph: Graph,
    slots: dict[int, int],
    index: int,
    kept: frozenset[int],
    category: Category,
    inner: Inner,
) -> None:
    """Issue one op; then what Python drops after it goes, unless autograd keeps it."""
    op = graph.ops[index]
    if index in inner:
        inner[index][0]()
    for number in op.outputs:
        value = graph.values[number]
        if value.base is None:
            slots[number] = w.alloc(tensor_of(value, category), slot=slots.get(number))
    if not op.is_view:
        w.launch(op.kernel, op.module)
    if index in inner:
        inner[index][1]()
    release(w, op, slots, kept)


def release(w: BlockWriter, op: Op, slots: dict[int, int], kept: frozenset[int]) -> None:
    """Free what Python drops after an op, unless it is ``kept``."""
    for value in op.releases:
        if value not in kept and value in slots:
            w.free(slots.pop(value))


def tensor_of(value: Value, category: Category) -> Tensor:
    """The storage of a value."""
    return Tensor(
        name=value.name,
        shape=value.shape,
        dtype=value.dtype,
        category=category,
        module=value.module,
    )


def copy_over(w: BlockWriter, value: Value, kind: str) -> None:
    """``save_on_cpu``: a copy on the compute stream, to the host or back."""
    size = value.bytes
    w.launch(
        Elementwise(name=f"{value.name}.offload", kind=kind, read=size, written=size), value.module
    )
