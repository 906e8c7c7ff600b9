"""Forward of a compiled block: library calls, and one fused kernel for what lies between them."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.compiled.fusion import Fusion, has_own_kernel, kind_of, runs_alone
from simulator.lowering.compiled.steps import Buffer, Step, fused, write_steps
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Graph, Op
from simulator.program.instructions import Category, Tensor


def write_compiled_forward(
    w: BlockWriter, graph: Graph, kept: frozenset[int], slots: dict[int, int]
) -> None:
    """Write the whole forward. ``slots``: of the input and of what outlives the call, by value."""
    forward = _Forward(Fusion(graph, kept), slots)
    stays = {forward.buffer(value) for value in {*kept, graph.output} & forward.fusion.maker.keys()}
    write_steps(w, list(forward.steps()), stays)


class _Forward:
    def __init__(self, fusion: Fusion, slots: dict[int, int]) -> None:
        self.fusion, self.graph = fusion, fusion.graph
        self._slots = slots
        self._buffers: dict[int, Buffer] = {}

    def buffer(self, value: int) -> Buffer:
        """The buffer of a storage; what this graph does not make, it does not free."""
        if value not in self._buffers:
            tensor = tensor_of(self.graph, value, Category.ACTIVATIONS)
            made = value in self.fusion.maker
            self._buffers[value] = Buffer(tensor, self._slots.get(value), owned=made)
        return self._buffers[value]

    def steps(self) -> Iterator[Step]:
        """Kernels in order; ops that are fused wait for the next library call."""
        waiting: list[int] = []
        for index, op in enumerate(self.graph.ops):
            if has_own_kernel(op):
                if self.fusion.computed.intersection(op.outputs):
                    yield from self._fused(waiting)
                    waiting = []
                    yield self._own(op)
                continue
            if not runs_alone(op):
                waiting.append(index)
                continue
            yield from self._fused(waiting)
            waiting = []
            reads = [self.buffer(value) for value in self.fusion.roots(op.inputs)]
            writes = [self.buffer(value) for value in op.outputs]
            yield Step(kernel=op.kernel, module=op.module, reads=reads, writes=writes)
        yield from self._fused(waiting)

    def _own(self, op: Op) -> Step:
        reads = [self.buffer(value) for value in self.fusion.sources(op.inputs)]
        writes = [self.buffer(value) for value in op.outputs]
        return Step(kernel=op.kernel, module=op.module, reads=reads, writes=writes)

    def _fused(self, ops: list[int]) -> Iterator[Step]:
        """A kernel for each group of written values that share what they are computed from."""
        groups: list[tuple[set[int], list[int]]] = []
        for index in ops:
            op = self.graph.ops[index]
            made = [value for value in op.outputs if value in self.fusion.written]
            if not made:
                continue
            sources, values = set(self.fusion.sources(op.inputs)), list(made)
            for group in [g for g in groups if g[0] & sources or set(g[1]) & sources]:
                groups.remove(group)
                sources, values = sources | group[0], [*group[1], *values]
            groups.append((sources - set(values), values))
        for sources, values in groups:
            op = self.graph.ops[self.fusion.maker[values[-1]]]
            reads = [self.buffer(value) for value in sorted(sources)]
            writes = [self.buffer(value) for value in values]
            yield fused(f"fused.{op.name}", kind_of(op), op.module, reads, writes)


def tensor_of(graph: Graph, value: int, category: Category) -> Tensor:
    """The tensor that an allocation of ``value`` names."""
    known = graph.values[value]
    return Tensor(
        name=known.name,
        shape=known.shape,
        dtype=known.dtype,
        category=category,
        module=known.module,
    )
