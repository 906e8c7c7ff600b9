"""Backward of a compiled block: library calls of its gradients, the rest fused between them.

A gradient is written only where a library call or the caller reads it; until then it is known by
the buffers that it is computed from. What forward did not keep is computed again at its first use.
The incoming gradient stays until the function returns, because the autograd engine holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.compiled.forward import tensor_of
from simulator.lowering.compiled.fusion import (
    Fusion,
    has_own_kernel,
    is_float8,
    kind_of,
    runs_alone,
)
from simulator.lowering.compiled.steps import Buffer, Step, fused, write_steps
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import BackwardStep, GradTensor, Graph, Op
from simulator.program.instructions import Category, Tensor


@dataclass(slots=True, eq=False)
class Lazy:
    """A gradient: the buffers that it is computed from, by a kernel of what class.

    ``whole``: the buffer that it is already, if it is.
    """

    sources: tuple[Buffer, ...]
    kind: str = "copy"
    whole: Buffer | None = None

    def settle(self, buffer: Buffer) -> None:
        """It lies in ``buffer`` from now on, for all that it was handed to."""
        self.sources, self.whole = (buffer,), buffer


def _in(buffer: Buffer) -> Lazy:
    return Lazy((buffer,), whole=buffer)


def write_compiled_backward(
    w: BlockWriter,
    graph: Graph,
    kept: frozenset[int],
    slots: Mapping[int, int],
    incoming: int,
    accumulate: Callable[[GradTensor, int], None],
    lent: Iterable[int],
) -> int | None:
    """Write the whole backward; arguments and result as of ``autograd.write_backward``.

    ``incoming``: the slot of the output's gradient; ``lent``: slots that nobody needs after it.
    Autograd sees one node, which returns the gradients of all weights at its end.
    """
    backward = CompiledBackward(Fusion(graph, kept), slots)
    backward.play(incoming)
    returned = backward.returned
    stays = {buffer for _, buffer in backward.weights}
    write_steps(w, backward.steps, stays if returned is None else {*stays, returned})
    w.free_all((incoming, *lent))
    for made, buffer in backward.weights:
        accumulate(made, _slot(buffer))
    return None if returned is None else _slot(returned)


def computed_again(graph: Graph, kept: frozenset[int]) -> Sequence[int]:
    """Numbers of the library calls that backward runs again."""
    backward = CompiledBackward(Fusion(graph, kept), {})
    backward.play(0)
    return backward.again


class CompiledBackward:
    """Walks the graph from its end; ``steps`` are the kernels, ``again`` the calls run again."""

    def __init__(self, fusion: Fusion, slots: Mapping[int, int]) -> None:
        self.fusion, self.graph = fusion, fusion.graph
        self.steps: list[Step] = []
        self.again: list[int] = []
        self.weights: list[tuple[GradTensor, Buffer]] = []
        self.returned: Buffer | None = None
        self._found: dict[int, Buffer] = {}
        for value in {*fusion.kept, *self.graph.borrows, *self.graph.tables}:
            tensor = tensor_of(self.graph, value, Category.ACTIVATIONS)
            owned = value in fusion.kept
            self._found[value] = Buffer(tensor, slots.get(value), owned=owned)
        self._pending: dict[int, list[Lazy]] = {}
        self._readers: dict[int, int] = {}
        for op in self.graph.ops:
            for value in dict.fromkeys(op.inputs):
                self._readers[value] = self._readers.get(value, 0) + 1

    def play(self, incoming: int) -> None:
        """Run every node; fused ones as soon as all that reads their results has run."""
        output = self.graph.output
        tensor = replace(tensor_of(self.graph, output, Category.TEMPORARIES), name="grad_output")
        buffer = Buffer(tensor, incoming, owned=False)
        self._pending[output] = [_in(buffer)]
        left = list(range(len(self.graph.ops)))
        while left:
            ready = [index for index in left if self._is_ready(self.graph.ops[index])]
            chosen = [index for index in ready if not runs_alone(self.graph.ops[index])]
            index = max(chosen or ready)
            left.remove(index)
            self._node(self.graph.ops[index])
        source = self.graph.input
        if source is not None:
            (self.returned,) = self._write([source])

    def _is_ready(self, op: Op) -> bool:
        return not any(self._readers.get(value, 0) for value in op.outputs)

    def _node(self, op: Op) -> None:
        if any(value in self._pending for value in op.outputs):
            if runs_alone(op):
                self._call(op)
            else:
                self._fuse(op)
        for value in dict.fromkeys(op.inputs):
            self._readers[value] -= 1

    def _fuse(self, op: Op) -> None:
        """An op that is fused writes its weights' gradients alone."""
        parts = [part for value in op.outputs for part in self._pending.pop(value, ())]
        arrived = _sum(parts)
        for value in op.passes:
            self._pending.setdefault(value, []).append(arrived)
        saved = self._sources((*op.saves, *op.borrows))
        sources = tuple(dict.fromkeys((*arrived.sources, *saved)))
        for made in op.gradients:
            if made.value is not None:
                self._pending.setdefault(made.value, []).append(Lazy(sources, _kind(op)))
            elif made.weight is not None:
                buffer = self._weight(made, op.module)
                self.steps.append(fused(made.name, _kind(op), op.module, sources, (buffer,)))

    def _call(self, op: Op) -> None:
        """A library call reads its gradient and what it needs of forward from memory."""
        outputs = [value for value in op.outputs if value in self._pending]
        arrived = self._cast_gradient(op, outputs) if is_float8(op) else self._write(outputs)
        made: dict[int, Buffer] = {}
        for step in op.backward:
            for number in step.outputs:
                made[number] = self._gradient(op.gradients[number], op.module)
            of_weight = any(op.gradients[number].weight is not None for number in step.outputs)
            reads = arrived[of_weight : of_weight + 1] if is_float8(op) else arrived
            saved = [self._again(value) for value in _read_by(op, step)]
            writes = [made[number] for number in step.outputs]
            self.steps.append(
                Step(kernel=step.kernel, module=op.module, reads=(*reads, *saved), writes=writes)
            )
        for number, gradient in enumerate(op.gradients):
            if gradient.value is not None:
                found = _in(made[number])
                self._pending.setdefault(gradient.value, []).append(found)

    def _cast_gradient(self, op: Op, outputs: Sequence[int]) -> list[Buffer]:
        """Rows and columns of what arrives in float8, by its largest magnitude."""
        arrived = _sum([part for value in outputs for part in self._pending.pop(value)])
        sources = (arrived.whole,) if arrived.whole else arrived.sources
        known = tensor_of(self.graph, op.outputs[0], Category.TEMPORARIES)
        largest, rows, columns = (
            Buffer(replace(known, name=f"{known.name}.grad.{name}", shape=shape, dtype=dtype))
            for name, shape, dtype in (
                ("max", (1,), known.dtype),
                ("float8", known.shape, DType.FP8),
                ("columns", known.shape, DType.FP8),
            )
        )
        first = fused(f"{largest.tensor.name}", arrived.kind, op.module, sources, [largest])
        cast = (rows, columns)
        second = fused(rows.tensor.name, arrived.kind, op.module, (*sources, largest), cast)
        self.steps += [first, second]
        return list(cast)

    def _gradient(self, made: GradTensor, module: str) -> Buffer:
        if made.weight is not None:
            return self._weight(made, module)
        return Buffer(_tensor(made, module, Category.TEMPORARIES))

    def _weight(self, made: GradTensor, module: str) -> Buffer:
        buffer = Buffer(_tensor(made, module, Category.UNSHARDED_GRADIENTS))
        self.weights.append((made, buffer))
        return buffer

    def _write(self, values: Sequence[int]) -> list[Buffer]:
        """The gradients of ``values``, written in one kernel with those that share a source."""
        wanted = {value: _sum(self._pending.pop(value)) for value in values}
        shared = {source for each in wanted.values() if not each.whole for source in each.sources}
        shared = {source for source in shared if source not in self._found.values()}
        for value in self._written_soon() if shared else ():
            each = _sum(self._pending[value])
            if each.whole is None and shared & set(each.sources):
                wanted[value] = each
        found = {value: each.whole or self._new(value) for value, each in wanted.items()}
        unwritten = [value for value, each in wanted.items() if each.whole is None]
        if unwritten:
            self._write_together([wanted[v] for v in unwritten], [found[v] for v in unwritten])
        for value in found.keys() - set(values):
            self._pending[value] = [wanted[value]]
        return [found[value] for value in values]

    def _write_together(self, gradients: Sequence[Lazy], buffers: Sequence[Buffer]) -> None:
        sources = list(dict.fromkeys(s for each in gradients for s in each.sources))
        first = buffers[0].tensor
        step = fused(first.name, gradients[0].kind, first.module, sources, buffers)
        self.steps.append(step)
        for each, buffer in zip(gradients, buffers, strict=True):
            each.settle(buffer)

    def _written_soon(self) -> list[int]:
        """Pending gradients that are complete and that a library call reads."""
        calls = [op for op in self.graph.ops if runs_alone(op) and not is_float8(op)]
        results = [v for op in calls for v in op.outputs]
        return [v for v in results if v in self._pending and not self._readers.get(v, 0)]

    def _new(self, value: int) -> Buffer:
        known = tensor_of(self.graph, value, Category.TEMPORARIES)
        return Buffer(replace(known, name=f"{known.name}.grad"))

    def _again(self, value: int) -> Buffer:
        """A value of forward in memory: kept, or computed again."""
        value = self.graph.root(value)
        if value not in self._found:
            index = self.fusion.maker[value]
            op = self.graph.ops[index]
            if runs_alone(op):
                self.again.append(index)
                reads = [self._again(each) for each in self.fusion.roots(op.inputs)]
                made = [self._recomputed(each) for each in op.outputs]
                self.steps.append(
                    Step(kernel=op.kernel, module=op.module, reads=reads, writes=made)
                )
            elif has_own_kernel(op):
                reads, made = self._sources(op.inputs), [self._recomputed(value)]
                self.steps.append(
                    Step(kernel=op.kernel, module=op.module, reads=reads, writes=made)
                )
            else:
                sources = self._sources(op.inputs)
                made = [self._recomputed(value)]
                self.steps.append(fused(f"fused.{op.name}", kind_of(op), op.module, sources, made))
        return self._found[value]

    def _recomputed(self, value: int) -> Buffer:
        buffer = Buffer(tensor_of(self.graph, value, Category.RECOMPUTED))
        return self._found.setdefault(value, buffer)

    def _sources(self, values: Iterable[int]) -> list[Buffer]:
        """The buffers in memory that a fused kernel computes ``values`` from."""
        found: dict[Buffer, None] = {}
        for value in self.fusion.roots(values):
            index = self.fusion.maker.get(value)
            if value in self._found or index is None or _is_written(self.graph.ops[index]):
                found[self._again(value)] = None
            else:
                found |= dict.fromkeys(self._sources(self.graph.ops[index].inputs))
        return list(found)


def _is_written(op: Op) -> bool:
    """What reads its results reads them from memory."""
    return runs_alone(op) or has_own_kernel(op)


def _sum(parts: Sequence[Lazy]) -> Lazy:
    """Gradients that meet are added where they are read."""
    if len(parts) == 1:
        return parts[0]
    sources = tuple(dict.fromkeys(s for part in parts for s in part.sources))
    return Lazy(sources, next((part.kind for part in parts if part.kind != "copy"), "copy"))


def _kind(op: Op) -> str:
    """The efficiency class of an op's backward."""
    kernels = (step.kernel for step in op.backward)
    return next((k.kind for k in kernels if isinstance(k, Elementwise)), kind_of(op))


def _read_by(op: Op, step: BackwardStep) -> list[int]:
    """What a step reads of what its op keeps."""
    kept = (*op.saves, *op.borrows)
    reads = [op.gradients[number].reads for number in step.outputs]
    return [value for value in kept if any(read is None or value in read for read in reads)]


def _tensor(made: GradTensor, module: str, category: Category) -> Tensor:
    return Tensor(
        name=made.name, shape=made.shape, dtype=made.dtype, category=category, module=module
    )


def _slot(buffer: Buffer) -> int:
    assert buffer.slot is not None
    return buffer.slot
