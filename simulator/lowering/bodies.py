"""The code inside each block of a training step: modules with the framework's hooks around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.accumulate import AccumulateGrad
from simulator.lowering.autograd import write_backward, write_forward
from simulator.lowering.calls import Gradient
from simulator.lowering.compiled import write_compiled_backward, write_compiled_forward
from simulator.lowering.framework.hooks import Backward, Forward, Hook
from simulator.lowering.loss_scaling import (
    write_scaled_gradient,
    write_scaled_loss,
    write_scaler,
)
from simulator.lowering.units import LOSS, Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.model.decoder import Decoder
from simulator.model.graph import Graph
from simulator.plan.plan import Training
from simulator.program.instructions import Category, Tensor


class Bodies:
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
            self._write_forward(w, kind, slots, ops)
            if not number and kind.name == "head":  # the base model's forward has returned
                w.free_all(w.shared("previous", f"kept.{name}") for name in returned)
        hooks.after(w)
        rest = range(_hooked_ops(kind), len(kind.graph.ops))
        write_forward(w, kind.graph, kind.recompute, slots, rest, self._lent(kind))
        if not lent_input:
            _drop_input(w, kind, slots)
        w.free_all(slots[v] for v in kind.graph.until_return if v not in kind.recompute.kept)
        if kind.name != "head":
            w.free_all(w.shared("previous", f"kept.{name}") for name in returned)

    def _write_forward(self, w: BlockWriter, kind: Kind, slots: dict[int, int], ops: range) -> None:
        if kind.compiled:
            write_compiled_forward(w, kind.graph, kind.recompute.kept, slots)
        else:
            write_forward(w, kind.graph, kind.recompute, slots, ops, self._lent(kind))

    def loss_forward(
        self, w: BlockWriter, hook: Hook, units: Sequence[Unit], left: str, *, replaces: bool
    ) -> None:
        """The loss; the training loop drops the logits when it has returned, unless it keeps them.

        ``hook``: when the model's forward returns. ``replaces``: the loop kept the logits of the
        forward before until then. ``left``: first word of the registers in which the head's
        gradients are left. Leaving autocast drops its cache: the casts that no node keeps go.
        """
        graph, inside = self.loss.graph, self.part.inside
        slots = self._slots(w, self.loss)
        slots |= self._given(w, "previous", left)
        held = frozenset(() if graph.until_next is None else (graph.until_next,))
        write_forward(w, graph, self.loss.recompute, slots, range(inside), held)
        self._drop_through_loss(w)
        hook.write(w)
        if replaces:
            w.free(w.shared("before", "held"))
        rest = range(inside, len(graph.ops))
        write_forward(w, graph, self.loss.recompute, slots, rest, held)
        if graph.input not in held:
            _drop_input(w, self.loss, slots)
        for unit in units:
            w.free_all(
                w.shared(unit.label, f"kept.{unit.kind.graph.values[value].name}")
                for value in sorted(unit.kind.recompute.until_loss)
            )
        w.mark("fwd_done")

    def _given(self, w: BlockWriter, head: str, left: str) -> dict[int, int]:
        """Slots of the head's gradients that the loss' forward makes; ``head`` is its role."""
        graph, found = self.loss.graph, {}
        for op in graph.ops:
            for given in op.gives:
                if given.weight in self.tied:
                    found[given.saved] = w.shared("embed", f"tied.{given.weight}")
                elif given.weight is not None:
                    found[given.saved] = w.shared(head, f"{left}.{given.weight}")
        return found

    def _drop_through_loss(self, w: BlockWriter) -> None:
        """The model's forward, which has computed the loss, returns: what its locals held goes."""
        for value in self.head.graph.through_loss:
            if value not in self.head.recompute.kept:
                w.free(w.shared("previous", f"kept.{_named(self.head, value)}"))

    def loss_backward(
        self, w: BlockWriter, hooks: Mapping[int, Hook], *, first: bool = False
    ) -> None:
        """``loss.backward()`` of a loss of logits.

        ``hooks``: those on what the model returned that fire here, by how many ops of the loss had
        run when it was there. With loss scaling it is the scaled loss'; ``first``: the scaler is
        made, too.
        """
        slots = self._slots(w, self.loss)
        nodes = AccumulateGrad(w, self.loss.graph, Backward(), ())
        out = self._loss_backward(w, "own", slots, nodes, hooks, first=first)
        w.promote(out, "previous", "grad")

    def _loss_backward(
        self,
        w: BlockWriter,
        own: str,
        slots: dict[int, int],
        nodes: AccumulateGrad,
        hooks: Mapping[int, Hook],
        *,
        first: bool = False,
    ) -> int:
        """It starts from a gradient of one, which lives until ``loss.backward()`` returns.

        Returns the slot of the gradient of the loss' input.
        """
        scaled = self.training.precision.loss_scaling
        if scaled:
            if first:
                write_scaler(w)
            write_scaled_loss(w)
        root = Tensor(
            name="loss.grad",
            shape=(1,),
            dtype=DType.FP32,
            category=Category.TEMPORARIES,
            module=LOSS,
        )
        slot = w.alloc(root, slot=w.shared(own, "grad"))
        w.launch(Elementwise(name="ones_like", kind="copy", read=0, written=4), LOSS)
        gradient = Gradient(slot, holders=2)
        if scaled:
            gradient = Gradient(write_scaled_gradient(w), holders=1)
        kept = self.loss.recompute.kept
        out = write_backward(
            w,
            self.loss.graph,
            self.loss.recompute,
            {value: slot for value, slot in slots.items() if value in kept},
            gradient,
            nodes.run,
            {},
            {number: partial(hook.write, w) for number, hook in hooks.items()},
        )
        assert out is not None
        return out

    def projected_backward(
        self,
        w: BlockWriter,
        hooks: Backward,
        returned: Mapping[int, Hook],
        *,
        returns: frozenset[str],
    ) -> None:
        """The backward of a loss that projects, and of what is left of the head: the norm.

        The hook of a head whose forward the framework completed fires after the root's first one.
        """
        kind, inside = self.head, self.part.inside
        slots = self._slots(w, self.loss, own="loss", previous="own")
        slots |= self._given(w, "own", hooks.left)
        nodes = AccumulateGrad(w, kind.graph, hooks, self.tied)
        first = returned[inside]

        def both(w: BlockWriter) -> None:
            first.write(w)
            hooks.before(w)

        fired = {**returned, inside: Hook(write=both)}
        middle = self._loss_backward(w, "loss", slots, nodes, fired)
        out = self._run_backward(w, kind, Gradient(middle), nodes, returns=returns)
        if out is not None:
            w.promote(out, "previous", "grad")
        hooks.after(w, nodes.gradients)

    def backward(
        self, w: BlockWriter, kind: Kind, hooks: Backward, root: Hook, *, returns: frozenset[str]
    ) -> None:
        """One unit. ``root``: the hook on the model's output, where this unit makes it.

        ``returns``: of the values lent to this unit, those that nobody needs after it.
        """
        hooks.before(w)
        root.write(w)
        nodes = AccumulateGrad(w, kind.graph, hooks, self.tied)
        incoming = Gradient(w.shared("own", "grad"))
        again = partial(hooks.again, w)
        out = self._run_backward(w, kind, incoming, nodes, returns=returns, again=again)
        if out is not None:
            w.promote(out, "previous", "grad")
        hooks.after(w, nodes.gradients)

    def end_backward(self, w: BlockWriter, hook: Hook) -> None:
        """The engine returns: the loss and its gradient go; then the loop drops the batch."""
        hook.write(w)
        scaled = ("scaled",) if self.training.precision.loss_scaling else ()
        w.free_all(w.shared("loss", name) for name in ("grad", *scaled, "out"))
        w.mark("bwd_done")
        w.free_all(w.shared("own", name) for name in self.inputs)

    def _run_backward(
        self,
        w: BlockWriter,
        kind: Kind,
        incoming: Gradient,
        nodes: AccumulateGrad,
        *,
        returns: frozenset[str],
        again: Callable[[], None] | None = None,
    ) -> int | None:
        """``again``: the hook on what the unit returns beside its output."""
        kept = kind.recompute.kept
        slots = {value: slot for value, slot in self._slots(w, kind).items() if value in kept}
        lent = {}
        if returns:
            lent = {v: s for v, s in self._borrowed(w, kind.graph) if _named(kind, v) in returns}
        if kind.compiled:
            return write_compiled_backward(
                w, kind.graph, kept, slots, incoming.slot, nodes.run, lent.values()
            )
        hooks = {} if again is None else dict.fromkeys(_after_returned(kind.graph), again)
        return write_backward(
            w, kind.graph, kind.recompute, slots, incoming, nodes.run, lent, hooks
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
        return frozenset(v for v in kind.graph.borrows if _named(kind, v) in self.kept_lent)


def _after_returned(graph: Graph) -> Iterator[int]:
    """How many ops backward has to go when the gradient of a further result is there."""
    for index, op in enumerate(graph.ops):
        if set(op.outputs) & set(graph.returns) and (op.gradients or op.passes):
            yield index + 1


def returned_by(kind: Kind) -> tuple[str, ...]:
    """Names of what a unit returns beside its output and no node keeps."""
    return tuple(_named(kind, v) for v in kind.graph.returns if v not in kind.recompute.kept)


def kept_borrows(kind: Kind) -> frozenset[str]:
    """Names of lent values that a unit keeps: its nodes do, or its checkpoint's arguments."""
    return frozenset(_named(kind, value) for value in kind.recompute.borrowed)


def _named(kind: Kind, value: int) -> str:
    return kind.graph.values[value].name


def lent_output(decoder: Decoder) -> str | None:
    """Name of the embedding's output if the model's forward holds it past the first block."""
    graph = decoder.embedding
    return graph.values[graph.output].name if graph.output in graph.lends else None


def _drop_input(w: BlockWriter, kind: Kind, slots: dict[int, int]) -> None:
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
