"""Pass 2: a graph becomes forward and backward code, with PyTorch's lifetimes.

Forward: an output is allocated when its op runs and freed when Python and autograd have both let
go. Backward: nodes run from the last op to the first (the engine's ready queue is ordered by
sequence number, torch/csrc/autograd/engine.cpp); a node allocates its gradients, drops the
incoming one and what it had kept, and then hands its gradients on. Two gradients that meet are
summed out of place.

Checkpointing acts here only (torch/utils/checkpoint.py, non-reentrant): forward keeps the input
and what a selective policy caches; the first node that unpacks a kept tensor recomputes, which
stops early before the last op that packs anything; cached results that were never popped and the
input stay until the last node has unpacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.kernels import Elementwise
from simulator.lowering.recompute import Recompute
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import GradTensor, Graph, Op
from simulator.program.instructions import Category, Tensor


@dataclass(slots=True)
class Gradient:
    """A gradient storage in flight and how many hold it."""

    slot: int
    holders: int = 1


def write_forward(
    w: BlockWriter,
    graph: Graph,
    recompute: Recompute,
    slots: dict[int, int],
    ops: range,
    lent: frozenset[int] = frozenset(),
) -> None:
    """Write ``ops`` of ``graph``.

    ``slots`` maps values to slots: on entry the input and whatever must be shared; what the ops
    allocate is added and what they drop is removed. ``lent``: borrowed values that some layer
    keeps for backward.
    """
    _run(
        w,
        graph,
        slots,
        kept=recompute.kept | recompute.until_loss | lent,
        category=Category.ACTIVATIONS,
        ops=ops,
        cached=frozenset(),
    )


def write_backward(
    w: BlockWriter,
    graph: Graph,
    recompute: Recompute,
    slots: dict[int, int],
    incoming: Gradient,
    existing: Mapping[str, int],
    lent: Mapping[int, int],
) -> tuple[dict[str, int], int | None]:
    """Write the whole backward of ``graph``.

    ``slots`` holds what forward kept, the input included if it was kept; ``existing`` the weights'
    gradients that are there already: new ones are added to them in place; ``lent`` the borrowed
    values that nobody needs after this backward. Returns the slots of the weights' gradients by
    weight name, and that of the input's gradient (None: no input).
    """
    return _Backward(w, graph, recompute, slots, existing, lent).write(incoming)


def _run(
    w: BlockWriter,
    graph: Graph,
    slots: dict[int, int],
    *,
    kept: frozenset[int],
    category: Category,
    ops: range,
    cached: frozenset[int],
) -> None:
    """Run ``ops`` in host order; results of ``cached`` ops are popped, not computed."""
    for index in ops:
        op = graph.ops[index]
        if index not in cached:
            for number in op.outputs:
                value = graph.values[number]
                if value.base is not None:
                    continue
                slots[number] = w.alloc(
                    Tensor(
                        name=value.name,
                        shape=value.shape,
                        dtype=value.dtype,
                        category=category,
                        module=value.module,
                    ),
                    slot=slots.get(number),
                )
            if not op.is_view:
                w.launch(op.kernel, op.module)
        _release(w, op, slots, kept)


def _release(w: BlockWriter, op: Op, slots: dict[int, int], kept: frozenset[int]) -> None:
    """What Python drops after ``op`` goes, unless autograd keeps it."""
    for value in op.releases:
        if value not in kept and value in slots:
            w.free(slots.pop(value))


class _Backward:
    """The state of one backward pass: gradients in flight, and who still keeps what."""

    def __init__(
        self,
        w: BlockWriter,
        graph: Graph,
        recompute: Recompute,
        slots: dict[int, int],
        existing: Mapping[str, int],
        lent: Mapping[int, int],
    ) -> None:
        self.w, self.graph, self.recompute, self.slots = w, graph, recompute, slots
        self.existing, self.lent = existing, lent
        self.keepers: dict[int, int] = {}
        for op in graph.ops:
            for value in (*op.saves, *op.borrows):
                self.keepers[value] = self.keepers.get(value, 0) + 1
        self.packed = sum(self.keepers.values())
        self.pending: dict[int, Gradient] = {}
        self.weights: dict[str, int] = {}
        self.recomputed = not recompute.active

    def write(self, incoming: Gradient) -> tuple[dict[str, int], int | None]:
        self.pending[self.graph.output] = incoming
        for op in reversed(self.graph.ops):
            arrived = [self.pending.pop(o) for o in op.outputs if o in self.pending]
            if arrived:
                self._node(op, arrived)
        source = self.graph.input
        return self.weights, None if source is None else self.pending[source].slot

    def _node(self, op: Op, arrived: list[Gradient]) -> None:
        """Run one node: ``arrived`` are the gradients of its outputs."""
        if (op.saves or op.borrows) and not self.recomputed:
            self._recompute()
        results: list[tuple[int, Gradient]] = []
        for value in op.passes:
            arrived[0].holders += 1
            results.append((value, arrived[0]))
        results += self._launch(op, arrived)
        self._drop_all(arrived)
        self._unpack(op)
        for value, gradient in results:
            self._deliver(value, gradient)
        for made in op.gradients:
            if made.weight is not None and made.weight in self.existing:
                self._add_in_place(made, op.module)

    def _add_in_place(self, made: GradTensor, module: str) -> None:
        """AccumulateGrad, which the engine runs before any other node."""
        size = made.bytes
        kernel = Elementwise(name=f"{made.name}.add", kind="copy", read=2 * size, written=size)
        self.w.launch(kernel, module)
        assert made.weight is not None
        self.w.free(self.weights[made.weight])
        self.weights[made.weight] = self.existing[made.weight]

    def _launch(self, op: Op, arrived: list[Gradient]) -> list[tuple[int, Gradient]]:
        """Allocate and compute the op's gradients; weights' stay, values' are returned."""
        slots = [0] * len(op.gradients)
        results = []
        for step in op.backward:
            for number in step.outputs:
                made = op.gradients[number]
                category = Category.TEMPORARIES
                if made.weight is not None:
                    category = Category.UNSHARDED_GRADIENTS
                slots[number] = self.w.alloc(
                    Tensor(
                        name=made.name,
                        shape=made.shape,
                        dtype=made.dtype,
                        category=category,
                        module=op.module,
                    )
                )
                if made.weight is not None:
                    self.weights[made.weight] = slots[number]
                elif made.value is not None:
                    results.append((made.value, Gradient(slots[number])))
            self.w.launch(step.kernel, op.module)
            self.w.free_all(slots[number] for number in step.frees)
            if step.drops_incoming:
                self._drop_all(arrived)
        return results

    def _drop_all(self, gradients: list[Gradient]) -> None:
        for gradient in gradients:
            self._drop(gradient)
        gradients.clear()

    def _drop(self, gradient: Gradient) -> None:
        gradient.holders -= 1
        if not gradient.holders:
            self.w.free(gradient.slot)

    def _unpack(self, op: Op) -> None:
        """The node releases what it kept; after the last node the checkpoint lets go too."""
        checkpointed = self.recompute.active
        for value in op.saves:
            self.keepers[value] -= 1
            if not self.keepers[value] and not (checkpointed and value == self.graph.input):
                self.w.free(self.slots.pop(value))
        for value in op.borrows:
            self.keepers[value] -= 1
            if not self.keepers[value] and value in self.lent and not checkpointed:
                self.w.free(self.lent[value])
        self.packed -= len(op.saves) + len(op.borrows)
        if (op.saves or op.borrows) and not self.packed and checkpointed:
            self.w.free_all((*self.slots.values(), *self.lent.values()))
            self.slots.clear()

    def _deliver(self, value: int, gradient: Gradient) -> None:
        """Add to the gradient that already waits for this value, out of place."""
        other = self.pending.get(value)
        if other is None:
            self.pending[value] = gradient
            return
        target = self.graph.values[value]
        tensor = Tensor(
            name=f"{target.name}.grad_sum",
            shape=target.shape,
            dtype=target.dtype,
            category=Category.TEMPORARIES,
            module=target.module,
        )
        total = Gradient(self.w.alloc(tensor))
        size = tensor.requested
        kernel = Elementwise(name=tensor.name, kind="copy", read=2 * size, written=size)
        self.w.launch(kernel, target.module)
        self._drop(other)
        self._drop(gradient)
        self.pending[value] = total

    def _recompute(self) -> None:
        """Run forward again up to the last op that keeps anything, popping what was cached."""
        self.recomputed = True
        kept = self.graph.saved_values()
        stop = self.recompute.stop
        _run(
            self.w,
            self.graph,
            self.slots,
            kept=kept,
            category=Category.RECOMPUTED,
            ops=range(stop),
            cached=self.recompute.cached,
        )
        never_popped = {
            value
            for index in self.recompute.cached
            if index >= stop
            for value in self.graph.ops[index].outputs
        }
        result = self.graph.output
        if result in self.slots and result not in kept:
            self.w.free(self.slots.pop(result))
        for op in self.graph.ops[stop:]:  # the early stop unwinds every Python frame
            _release(self.w, op, self.slots, kept | never_popped)
