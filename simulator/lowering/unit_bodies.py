"""The code of a unit's forward and backward, with the framework's hooks around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.accumulate import AccumulateGrad
from simulator.lowering.again import Around
from simulator.lowering.autograd import write_backward, write_forward
from simulator.lowering.calls import Gradient
from simulator.lowering.compiled import write_compiled_backward, write_compiled_forward
from simulator.lowering.framework.hooks import Backward, Forward, Hook, Nested
from simulator.lowering.issue import Code, Inner, tensor_of
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.model.decoder import Decoder
from simulator.model.graph import Graph
from simulator.plan.plan import Training
from simulator.program.instructions import Category, Tensor


class UnitBodies:
    """Writes one block a method; ``loss`` is the kind of the loss' graph."""

    def __init__(
        self,
        decoder: Decoder,
        training: Training,
        loss: Kind,
        units: Sequence[Unit],
    ) -> None:
        self.decoder, self.training, self.loss = decoder, training, loss
        masked = training.mask != "none"
        self.inputs = ("tokens", "labels", "attention_mask") if masked else ("tokens", "labels")
        self.kept_lent = frozenset().union(*(kept_borrows(unit.kind) for unit in units))
        first = decoder.embedding
        self.kept_lent |= {first.values[v].name for v in first.saved_values() & {*first.lends}}
        self.lent_output = lent_output(decoder)
        self.head, self.part = units[-1].kind, decoder.loss_part
        block = units[1].kind
        if self.lent_output is not None and block.graph.input in block.recompute.kept:
            self.kept_lent |= {self.lent_output}
        self.leaf = training.checkpoint_reentrant and not first.has_backward
        self.tied = frozenset(weight.name for weight in decoder.head.weights if weight.tied)

    def buffers(self, w: BlockWriter) -> None:
        """Persistent tensors that are no parameters."""
        for buffer in self.decoder.buffers:
            tensor = Tensor(
                name=buffer.name,
                shape=buffer.shape,
                dtype=buffer.dtype,
                category=Category.BUFFERS,
                module="embed",
            )
            w.alloc(tensor, slot=w.shared("own", f"buffer.{buffer.name}"))
        w.mark("start")

    def batch(self, w: BlockWriter, hook: Hook) -> None:
        """Token ids, labels and mask, held by the training loop until backward is done."""
        for name in self.inputs:
            tensor = Tensor(
                name=name,
                shape=(self.training.micro_batch, self.training.seq_len),
                dtype=DType.INT64,
                category=Category.INPUTS,
                module="embed",
            )
            w.alloc(tensor, slot=w.shared("own", name))
        hook.write(w)

    def forward(
        self,
        w: BlockWriter,
        kind: Kind,
        hooks: Forward,
        *,
        lent_input: bool,
        returned: Sequence[str],
    ) -> None:
        """One unit. The caller drops its reference to the input when the unit returns.

        ``lent_input``: the model's forward holds the input longer, and a later unit drops it.
        ``returned``: what the caller still holds of the unit before.
        """
        slots = self._slots(w, kind)
        casts = range(kind.graph.casts)
        write_forward(w, kind.graph, kind.recompute, slots, casts, self._lent(kind))
        hooks.before(w)
        for number, (first, end) in enumerate(_modules(kind)):
            if number:
                hooks.between(w)
            ops = range(max(first, len(casts)), end)
            self._write_forward(w, kind, slots, ops, hooks.nested)
            if not number and kind.name == "head":  # the base model's forward has returned
                w.free_all(w.shared("previous", f"kept.{name}") for name in returned)
        hooks.after(w)
        rest = range(_hooked_ops(kind), len(kind.graph.ops))
        write_forward(w, kind.graph, kind.recompute, slots, rest, self._lent(kind))
        if not lent_input:
            drop_input(w, kind, slots)
        w.free_all(slots[v] for v in kind.graph.until_return if v not in kind.recompute.kept)
        if kind.name != "head":
            w.free_all(w.shared("previous", f"kept.{name}") for name in returned)

    def _write_forward(
        self, w: BlockWriter, kind: Kind, slots: dict[int, int], ops: range, nested: Nested
    ) -> None:
        if kind.compiled:
            write_compiled_forward(w, kind.graph, kind.recompute.kept, slots)
        else:
            inner = _bound(w, nested)
            write_forward(w, kind.graph, kind.recompute, slots, ops, self._lent(kind), inner)

    def backward(
        self,
        w: BlockWriter,
        kind: Kind,
        hooks: Backward,
        root: Hook,
        *,
        returns: frozenset[str],
        leaf: bool,
    ) -> None:
        """One unit. ``root``: the hook on the model's output, where this unit makes it.

        ``returns``: of the values lent to this unit, those that nobody needs after it. ``leaf``:
        its input is one.
        """
        nodes = AccumulateGrad(w, kind.graph, hooks, self.tied)
        incoming = Gradient(w.shared("own", "grad"), holders=2 if hooks.held else 1)

        def before() -> None:
            hooks.before(w)
            root.write(w)

        def after() -> None:
            hooks.after(w, nodes.gradients)

        around = Around(inner=_bound(w, hooks.nested), holds_input=leaf or hooks.holds_input)
        if kind.reentrant:
            around = replace(
                around,
                before=partial(hooks.before_again, w),
                after=partial(_both, partial(hooks.after_again, w), before),
                end=after,
            )
        else:
            before()
        out = self._run_backward(w, kind, incoming, nodes, hooks, returns=returns, around=around)
        if out is not None:
            self._hand_on(w, kind, out, hooks, leaf=leaf)
        if not kind.reentrant:
            after()

    def _hand_on(
        self, w: BlockWriter, kind: Kind, out: int, hooks: Backward, *, leaf: bool
    ) -> None:
        """The gradient of the unit's input goes to the unit before.

        Where the input is a leaf it stays there; if somebody holds it, a copy does
        (``AccumulateGrad``).
        """
        graph = kind.graph
        if not (hooks.holds_input and leaf):
            w.promote(out, "previous", "grad")
            return
        assert graph.input is not None
        w.promote(out, "previous", "grad.held")
        value = graph.values[graph.input]
        tensor = replace(tensor_of(value, Category.TEMPORARIES), name=f"{value.name}.grad")
        w.alloc(tensor, slot=w.shared("previous", "grad"))
        w.launch(
            Elementwise(name=tensor.name, kind="copy", read=value.bytes, written=value.bytes),
            value.module,
        )

    def _run_backward(
        self,
        w: BlockWriter,
        kind: Kind,
        incoming: Gradient,
        nodes: AccumulateGrad,
        hooks: Backward,
        *,
        returns: frozenset[str],
        around: Around,
    ) -> int | None:
        kept = kind.recompute.kept
        slots = {value: slot for value, slot in self._slots(w, kind).items() if value in kept}
        lent = {}
        if returns:
            lent = {v: s for v, s in self._borrowed(w, kind.graph) if named(kind, v) in returns}
        if kind.compiled:
            return write_compiled_backward(
                w, kind.graph, kept, slots, incoming.slot, nodes.run, lent.values()
            )
        fired = dict.fromkeys(_after_returned(kind.graph), partial(hooks.again, w))
        fired |= {op + 1: partial(write, w) for op, write in hooks.nested_backward.items()}
        return write_backward(
            w, kind.graph, kind.recompute, slots, incoming, nodes.run, lent, fired, around
        )

    def _slots(
        self, w: BlockWriter, kind: Kind, own: str = "own", previous: str = "previous"
    ) -> dict[int, int]:
        """Shared slots of a graph's output, its input, what it keeps, borrows and lends."""
        graph = kind.graph
        held = (*graph.through_loss, *graph.returns)
        slots = {
            value: w.shared(own, f"kept.{graph.values[value].name}")
            for value in sorted({*kind.recompute.kept, *kind.recompute.until_loss, *held})
            if value != graph.input
        }
        slots |= dict(self._borrowed(w, graph))
        slots |= {v: w.shared(own, f"lent.{graph.values[v].name}") for v in graph.lends}
        slots[graph.output] = w.shared(own, "out")
        if graph.input is not None:
            slots[graph.input] = w.shared(previous, "out")
        loop = self.loss.graph
        if kind is self.loss and loop.until_next is not None:
            slots[loop.until_next] = w.shared("loop", "held")
        if kind is self.head and loop.until_next is not None and loop.until_next == loop.input:
            slots[graph.output] = w.shared("loop", "held")
        return slots

    def _borrowed(self, w: BlockWriter, graph: Graph) -> Iterator[tuple[int, int]]:
        """Borrowed values and the slots in which the embedding's unit lends them."""
        for value in graph.borrows:
            name = graph.values[value].name
            out = name == self.lent_output
            yield value, w.shared("embed", "out" if out else f"lent.{name}")

    def _lent(self, kind: Kind) -> frozenset[int]:
        """Borrowed values of ``kind`` that some layer keeps for backward."""
        return frozenset(v for v in kind.graph.borrows if named(kind, v) in self.kept_lent)


def _after_returned(graph: Graph) -> Iterator[int]:
    """How many ops backward has to go when the gradient of a further result is there."""
    for index, op in enumerate(graph.ops):
        if set(op.outputs) & set(graph.returns) and (op.gradients or op.passes):
            yield index + 1


def _bound(w: BlockWriter, nested: Nested) -> Inner:
    return {op: (partial(before, w), partial(after, w)) for op, (before, after) in nested.items()}


def _both(first: Code, second: Code) -> None:
    first()
    second()


def returned_by(kind: Kind) -> tuple[str, ...]:
    """Names of what a unit returns beside its output and no node keeps."""
    return tuple(named(kind, v) for v in kind.graph.returns if v not in kind.recompute.kept)


def kept_borrows(kind: Kind) -> frozenset[str]:
    """Names of lent values that a unit keeps: its nodes do, or its checkpoint's arguments."""
    return frozenset(named(kind, value) for value in kind.recompute.borrowed)


def named(kind: Kind, value: int) -> str:
    """Name of a value of a unit's graph."""
    return kind.graph.values[value].name


def lent_output(decoder: Decoder) -> str | None:
    """Name of the embedding's output if the model's forward holds it past the first block."""
    graph = decoder.embedding
    return graph.values[graph.output].name if graph.output in graph.lends else None


def drop_input(w: BlockWriter, kind: Kind, slots: dict[int, int]) -> None:
    """The caller's reference to a unit's input goes, if no node keeps it."""
    source = kind.graph.input
    if source in slots and source not in kind.recompute.kept:
        w.free(slots[source])


def _modules(kind: Kind) -> Iterator[tuple[int, int]]:
    """First and end op of each module that the framework hooks in a unit: norm, then head."""
    if kind.name != "head":
        yield 0, _hooked_ops(kind)
        return
    yield from _runs_of_one_module(kind.graph)


def _hooked_ops(kind: Kind) -> int:
    """Ops inside the module that the framework hooks.

    After its embedding a model's forward makes what it lends, such as rotary tables.
    """
    ops = kind.graph.ops
    if kind.name == "embedding":
        return 1 + next(i for i, op in enumerate(ops) if op.kind == "embedding")
    return len(ops)


def _runs_of_one_module(graph: Graph) -> Iterator[tuple[int, int]]:
    first = 0
    for index in range(1, len(graph.ops) + 1):
        if index == len(graph.ops) or graph.ops[index].module != graph.ops[first].module:
            yield first, index
            first = index
