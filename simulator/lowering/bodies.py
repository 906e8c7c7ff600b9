"""The code inside each block of a training step: modules with the framework's hooks around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.autograd import Gradient, write_backward, write_forward
from simulator.lowering.framework import Framework, MicroStep
from simulator.lowering.units import LOSS, Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.model.decoder import Decoder
from simulator.model.graph import Graph
from simulator.plan.plan import Training
from simulator.program.instructions import Category, Tensor


class Bodies:
    """Writes one block a method; ``loss`` is the kind of the loss' graph."""

    def __init__(
        self, decoder: Decoder, training: Training, framework: Framework, loss: Kind
    ) -> None:
        self.decoder, self.training = decoder, training
        self.framework, self.loss = framework, loss

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

    def batch(self, w: BlockWriter, micro: MicroStep) -> None:
        """Token ids and labels, held by the training loop until backward is done."""
        for name in ("tokens", "labels"):
            tensor = Tensor(
                name=name,
                shape=(self.training.micro_batch, self.training.seq_len),
                dtype=DType.INT64,
                category=Category.INPUTS,
                module="embed",
            )
            w.alloc(tensor, slot=w.shared("own", name))
        self.framework.begin_forward(w, micro)

    def forward(
        self,
        w: BlockWriter,
        kind: Kind,
        behind: Kind | None,
        ahead: Sequence[Kind],
        micro: MicroStep,
        *,
        gathered: bool,
    ) -> None:
        """One unit. The caller drops its reference to the input when the unit returns."""
        if kind.wrapped:
            self.framework.pre_forward(w, kind, behind, ahead, micro, gathered=gathered)
        slots = _kept_slots(w, kind)
        for number, (first, end) in enumerate(_modules(kind)):
            if number and kind.wrapped:
                self.framework.between_modules(w, kind)
            write_forward(w, kind.graph, kind.recompute, slots, first, end)
        if kind.wrapped:
            self.framework.post_forward(w, kind)
        _drop_input(w, kind, slots)
        w.free_all(slots[v] for v in kind.graph.until_return if v not in kind.recompute.kept)

    def loss_forward(self, w: BlockWriter, micro: MicroStep, units: Sequence[Unit]) -> None:
        """The loss; the training loop drops the logits when it has returned.

        Leaving autocast drops its cache: the casts that no node keeps go.
        """
        self.framework.end_forward(w, micro)
        slots = _kept_slots(w, self.loss)
        graph = self.loss.graph
        write_forward(w, graph, self.loss.recompute, slots, 0, len(graph.ops))
        _drop_input(w, self.loss, slots)
        for unit in units:
            w.free_all(
                w.shared(unit.label, f"kept.{unit.kind.graph.values[value].name}")
                for value in sorted(unit.kind.recompute.until_loss)
            )
        w.mark("fwd_done")

    def loss_backward(self, w: BlockWriter, ahead: Kind | None) -> None:
        """``loss.backward()`` starts from a gradient of one, which lives until it returns."""
        root = Tensor(
            name="loss.grad",
            shape=(1,),
            dtype=DType.FP32,
            category=Category.TEMPORARIES,
            module=LOSS,
        )
        slot = w.alloc(root, slot=w.shared("own", "grad"))
        w.launch(Elementwise(name="ones_like", kind="copy", read=0, written=4), LOSS)
        self._backward(w, self.loss, Gradient(slot, holders=2), {})
        self.framework.begin_backward(w, ahead)

    def backward(
        self,
        w: BlockWriter,
        kind: Kind,
        ahead: Kind | None,
        pending: Kind | None,
        micro: MicroStep,
        *,
        first: bool,
    ) -> None:
        """One unit; ``ahead`` is gathered next, ``pending`` was reduced before."""
        if kind.wrapped:
            self.framework.pre_backward(w, kind, ahead, first=first)
        existing = {}
        if self.framework.adds_in_place(micro):
            existing = {
                weight.name: w.shared("own", f"accumulated.{weight.name}")
                for weight in kind.graph.weights
            }
        gradients = self._backward(w, kind, Gradient(w.shared("own", "grad")), existing)
        if kind.wrapped:
            self.framework.post_backward(w, kind, gradients, pending, micro)
        elif not existing:
            for name, slot in gradients.items():
                w.promote(slot, "own", f"{self.framework.waits_as(micro)}.{name}")

    def end_backward(self, w: BlockWriter, micro: MicroStep, *, pending: bool) -> None:
        """The engine returns: the loss and its gradient go; then the loop drops the batch."""
        self.framework.end_backward(w, pending, micro)
        w.free_all((w.shared("loss", "grad"), w.shared("loss", "out")))
        w.mark("bwd_done")
        w.free_all((w.shared("own", "tokens"), w.shared("own", "labels")))

    def _backward(
        self, w: BlockWriter, kind: Kind, incoming: Gradient, existing: dict[str, int]
    ) -> dict[str, int]:
        kept = kind.recompute.kept
        slots = {value: slot for value, slot in _kept_slots(w, kind).items() if value in kept}
        gradients, out = write_backward(w, kind.graph, kind.recompute, slots, incoming, existing)
        if out is not None:
            w.promote(out, "previous", "grad")
        return gradients


def _kept_slots(w: BlockWriter, kind: Kind) -> dict[int, int]:
    """Shared slots of a graph's output, its input, and what forward keeps."""
    graph = kind.graph
    slots = {
        value: w.shared("own", f"kept.{graph.values[value].name}")
        for value in sorted(kind.recompute.kept | kind.recompute.until_loss)
        if value != graph.input
    }
    slots[graph.output] = w.shared("own", "out")
    if graph.input is not None:
        slots[graph.input] = w.shared("previous", "out")
    return slots


def _drop_input(w: BlockWriter, kind: Kind, slots: dict[int, int]) -> None:
    source = kind.graph.input
    if source is not None and source not in kind.recompute.kept:
        w.free(slots[source])


def _modules(kind: Kind) -> Iterator[tuple[int, int]]:
    """First and end op of each module that the framework hooks in a unit: norm, then head."""
    if kind.name != "head":
        yield 0, len(kind.graph.ops)
        return
    yield from _runs_of_one_module(kind.graph)


def _runs_of_one_module(graph: Graph) -> Iterator[tuple[int, int]]:
    first = 0
    for index in range(1, len(graph.ops) + 1):
        if index == len(graph.ops) or graph.ops[index].module != graph.ops[first].module:
            yield first, index
            first = index
