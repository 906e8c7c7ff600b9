"""What is computed by a library call and what is fused, and the storages between them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from simulator.dtypes import DType
from simulator.kernels import Attention, Elementwise, Gemm
from simulator.model.graph import Graph, Op
from simulator.model.ops.compiled_float8 import WEIGHT_CAST


def is_call(op: Op) -> bool:
    """Whether the op is a library call, too dear to run again unasked.

    Source: ``compute_intensive_ops``, torch/_functorch/partitioners.py.
    """
    return isinstance(op.kernel, Gemm | Attention)


def runs_alone(op: Op) -> bool:
    """A library call, or a product of complex numbers (torchtitan's rotary embedding).

    For those Inductor makes no code (``unsupported_output_tensor``, torch/_inductor/lowering.py).
    """
    return is_call(op) or op.kind == "rope"


def has_own_kernel(op: Op) -> bool:
    """A reduction to a float8 scale, or a cast of a parameter: it writes all it makes.

    It reads what it needs as a fused kernel does, from whatever that is computed from.
    """
    return op.kind in ("max", WEIGHT_CAST)


def is_float8(op: Op) -> bool:
    """A product whose operands are casts."""
    return isinstance(op.kernel, Gemm) and op.kernel.dtype is DType.FP8


class Fusion:
    """A graph as the compiler sees it, with the values that wait for backward (``kept``)."""

    def __init__(self, graph: Graph, kept: frozenset[int] = frozenset()) -> None:
        self.graph, self.kept = graph, kept
        self.maker: dict[int, int] = {
            value: index
            for index, op in enumerate(graph.ops)
            for value in op.outputs
            if graph.values[value].base is None
        }

    def roots(self, values: Iterable[int]) -> list[int]:
        """The storages of ``values``, each once."""
        return list(dict.fromkeys(map(self.graph.root, values)))

    @cached_property
    def computed(self) -> frozenset[int]:
        """What ops make that forward runs, for its output, what is kept, and those in between."""
        found: set[int] = set()
        waiting = [self.graph.root(self.graph.output), *self.kept]
        while waiting:
            value = waiting.pop()
            if value not in found and value in self.maker:
                op = self.graph.ops[self.maker[value]]
                found.update(op.outputs)
                waiting.extend(self.roots(op.inputs))
        return frozenset(found)

    @cached_property
    def written(self) -> frozenset[int]:
        """Storages that forward writes: around library calls, what is kept, and the output."""
        found = set(self.kept) | {self.graph.root(self.graph.output)}
        for op in filter(runs_alone, self.graph.ops):
            found.update(op.outputs, map(self.graph.root, op.inputs))
        for op in filter(has_own_kernel, self.graph.ops):
            found.update(self.computed.intersection(op.outputs))
        return frozenset(found & self.maker.keys())

    def sources(self, values: Iterable[int]) -> list[int]:
        """The written storages, or the graph's inputs, that ``values`` are computed from."""
        found: dict[int, None] = {}
        waiting = self.roots(values)[::-1]
        while waiting:
            value = waiting.pop()
            if value in self.written or value not in self.maker:
                found[value] = None
            else:
                op = self.graph.ops[self.maker[value]]
                waiting.extend(reversed(self.roots(op.inputs)))
        return list(found)


def kind_of(op: Op) -> str:
    """The efficiency class of a fused kernel that ends in ``op``."""
    return op.kernel.kind if isinstance(op.kernel, Elementwise) else "copy"
