"""Pass 2: a graph becomes forward and backward code, with PyTorch's lifetimes.

Forward: an output is allocated when its op runs and freed when Python and autograd have both let
go. Backward: nodes run from the last op to the first (the engine's ready queue is ordered by
sequence number, torch/csrc/autograd/engine.cpp); a node allocates its gradients, drops the
incoming one and what it had kept, and then hands its gradients on. Two gradients that meet are
summed out of place.

Checkpointing acts here only: forward keeps the arguments of the checkpointed call and what a
selective policy caches; ``again`` says what backward does about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from simulator.kernels import Elementwise
from simulator.lowering.again import Around, run_again
from simulator.lowering.calls import Call, Gradient
from simulator.lowering.issue import Code, Inner, copy_over, issue
from simulator.lowering.recompute import Recompute
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import GradTensor, Graph, Op
from simulator.program.instructions import Category, Tensor

NOTHING = Around()
"""No framework hooks a call that runs again."""


def write_forward(
    w: BlockWriter,
    graph: Graph,
    recompute: Recompute,
    slots: dict[int, int],
    ops: range,
    lent: frozenset[int] = frozenset(),
    inner: Inner | None = None,
) -> None:
    """Write ``ops`` of ``graph``.

    ``slots`` maps values to slots: on entry the input and whatever must be shared; what the ops
    allocate is added and what they drop is removed. ``lent``: borrowed values that some layer
    keeps for backward.
    """
    kept = recompute.kept | recompute.until_loss | lent
    returns = {region.end - 1: region for region in recompute.regions}
    sent = {region.first: region.fetched for region in recompute.regions}
    for index in ops:
        for value in sent.get(index, ()):
            copy_over(w, graph.values[value], "device_to_host")
        issue(w, graph, slots, index, kept, Category.ACTIVATIONS, inner or {})
        if index in returns:
            leaves = sorted(returns[index].leaves - kept)
            w.free_all(slots.pop(value) for value in leaves if value in slots)


def write_backward(
    w: BlockWriter,
    graph: Graph,
    recompute: Recompute,
    slots: dict[int, int],
    incoming: Gradient,
    accumulate: Callable[[GradTensor, int], None],
    lent: Mapping[int, int],
    hooks: Mapping[int, Code] | None = None,
    around: Around = NOTHING,
) -> int | None:
    """Write the whole backward of ``graph``.

    ``slots`` holds what forward kept, the input included if it was kept; ``accumulate`` takes a
    weight's gradient and its slot as soon as it is there; ``lent`` are the borrowed values that
    nobody needs after this backward; ``hooks`` are called when backward has come down to so many
    ops, the gradients of what they made being there; ``around``: what surrounds a call that runs
    again. Returns the slot of the input's gradient (None: it needs none).
    """
    backward = _Backward(w, graph, recompute, slots, accumulate, lent, around)
    return backward.write(incoming, hooks or {})


def _weights_of(op: Op) -> Iterator[str]:
    """Names of the weights that an op's backward makes gradients of."""
    names = (*(made.weight for made in op.gradients), *(given.weight for given in op.gives))
    yield from (name for name in names if name is not None)


def _ends_in_engine(op: Op) -> bool:
    return bool(op.backward) and op.backward[-1].by_engine


class _Backward:
    """The state of one backward pass: gradients in flight, and who still keeps what."""

    def __init__(
        self,
        w: BlockWriter,
        graph: Graph,
        recompute: Recompute,
        slots: dict[int, int],
        accumulate: Callable[[GradTensor, int], None],
        lent: Mapping[int, int],
        around: Around,
    ) -> None:
        self.w, self.graph, self.recompute, self.slots = w, graph, recompute, slots
        self.accumulate, self.lent, self.around = accumulate, dict(lent), around
        self.pending: dict[int, Gradient] = {}
        self.uses = Counter(name for op in graph.ops for name in _weights_of(op))
        self.shared = frozenset(name for name, uses in self.uses.items() if uses > 1)
        self.sums: dict[str, int] = {}
        self.keepers: dict[int, int] = {}
        self.calls: dict[int, Call] = {}
        for region in recompute.regions:
            call = Call(region)
            self.calls |= dict.fromkeys(range(region.first, region.end), call)
            self._count(region.held, self.keepers)
        for index, op in enumerate(graph.ops):
            self._pack(op, self.calls.get(index))

    def _packed(self, op: Op, call: Call | None) -> tuple[int, ...]:
        """What a node keeps; of the model's buffers, those that were brought back for it."""
        if call is None or not call.region.fetched:
            return (*op.saves, *op.borrows)
        tables = (value for value in op.inputs if value in self.graph.tables)
        return (*op.saves, *op.borrows, *tables)

    def _pack(self, op: Op, call: Call | None) -> None:
        packed = self._packed(op, call)
        if call is None:
            self._count(packed, self.keepers)
        else:
            call.packed += len(packed)
            self._count((v for v in packed if v in call.region.inside), call.keepers)

    def _count(self, values: Iterable[int], keepers: dict[int, int]) -> None:
        for value in values:
            keepers[value] = keepers.get(value, 0) + 1

    def write(self, incoming: Gradient, hooks: Mapping[int, Code]) -> int | None:
        calls = self.recompute.regions
        if not any(region.reentrant for region in calls):
            return self._write(incoming, hooks)
        call = self.calls[calls[0].first]
        incoming.holders += 1
        run_again(self.w, self.graph, call, self.slots, self.around)
        out = self._write(incoming, hooks)
        self.around.end()
        self.w.free(call.slots.pop(self.graph.output))
        self._drop(incoming)
        self._let_go(v for v in call.region.held if not self._outlives(v))
        return out

    def _outlives(self, value: int) -> bool:
        return self.around.holds_input and value == self.graph.input

    def _write(self, incoming: Gradient, hooks: Mapping[int, Code]) -> int | None:
        self.pending[self.graph.output] = incoming
        for number in range(len(self.graph.ops), 0, -1):
            if number in hooks:
                hooks[number]()
            outputs = self.graph.ops[number - 1].outputs
            arrived = [self.pending.pop(o) for o in outputs if o in self.pending]
            if arrived:
                self._node(number - 1, arrived)
        if 0 in hooks:
            hooks[0]()
        source = self.graph.input
        given = None if source is None else self.pending.get(source)
        return None if given is None else given.slot

    def _node(self, index: int, arrived: list[Gradient]) -> None:
        """Run one node: ``arrived`` are the gradients of its outputs."""
        op, call = self.graph.ops[index], self.calls.get(index)
        if call is not None and not call.recomputed and self._packed(op, call):
            run_again(self.w, self.graph, call, self.slots, self.around)
        if op.accumulates:
            self._accumulate(op, arrived[0].slot)
            return
        results: list[tuple[int, Gradient]] = []
        for value in op.passes:
            arrived[0].holders += 1
            results.append((value, arrived[0]))
        made, weights = self._launch(op, arrived, call)
        results += made
        self._drop_all(arrived)
        if call is None or not _ends_in_engine(op):
            self._unpack(op, call)
        for given in op.gives:
            slot = self.slots.pop(given.saved)
            if given.value is not None:
                results.append((given.value, Gradient(slot)))
            elif given.weight is not None:
                weights.append((self._as_gradient(given.saved, given.weight), slot))
        for value, gradient in results:
            self._deliver(value, gradient)
        for gradient_of, slot in weights:
            self._sum(gradient_of, slot, op.module)

    def _as_gradient(self, number: int, weight: str) -> GradTensor:
        value = self.graph.values[number]
        return GradTensor(
            name=f"{weight}.grad", shape=value.shape, dtype=value.dtype, weight=weight
        )

    def _sum(self, made: GradTensor, slot: int, module: str) -> None:
        """The gradients of a weight that serves several ops meet before its node takes them.

        Each two are summed out of place; only the last sum is the gradient.
        """
        name = made.weight
        assert name is not None
        before = self.sums.get(name)
        self.uses[name] -= 1
        if before is not None:
            last = not self.uses[name]
            tensor = Tensor(
                name=f"{name}.grad_sum",
                shape=made.shape,
                dtype=made.dtype,
                category=Category.UNSHARDED_GRADIENTS if last else Category.TEMPORARIES,
                module=module,
            )
            size = made.bytes
            add = Elementwise(name=tensor.name, kind="copy", read=2 * size, written=size)
            self.w.launch(add, module)
            total = self.w.alloc(tensor)
            self.w.free_all((before, slot))
            slot = total
        self.sums[name] = slot
        if not self.uses[name]:
            self.accumulate(made, slot)

    def _accumulate(self, op: Op, slot: int) -> None:
        """The sum that arrives is the weight's gradient."""
        self.w.recategorise(slot, Category.UNSHARDED_GRADIENTS)
        self.accumulate(self._as_gradient(op.outputs[0], op.accumulates), slot)

    def _launch(
        self, op: Op, arrived: list[Gradient], call: Call | None
    ) -> tuple[list[tuple[int, Gradient]], list[tuple[GradTensor, int]]]:
        """Allocate and compute the op's gradients: those of values, and those of weights."""
        slots = [0] * len(op.gradients)
        results, weights = [], []
        for step in op.backward:
            if step.by_engine and call is not None:
                self._unpack(op, call)
            for number in step.outputs:
                made = op.gradients[number]
                category = Category.TEMPORARIES
                if made.weight is not None and made.weight not in self.shared:
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
                    weights.append((made, slots[number]))
                elif made.value is not None:
                    results.append((made.value, Gradient(slots[number])))
            self.w.launch(step.kernel, op.module)
            self.w.free_all(slots[number] for number in step.frees)
            if step.drops_incoming:
                self._drop_all(arrived)
        return results, weights

    def _drop_all(self, gradients: list[Gradient]) -> None:
        for gradient in gradients:
            self._drop(gradient)
        gradients.clear()

    def _drop(self, gradient: Gradient) -> None:
        gradient.holders -= 1
        if not gradient.holders:
            self.w.free(gradient.slot)

    def _unpack(self, op: Op, call: Call | None) -> None:
        """The node releases what it kept; after its last node a checkpoint lets go too."""
        packed = self._packed(op, call)
        if call is None:
            self._let_go(packed)
            return
        for value in packed:
            if value in call.keepers:
                call.keepers[value] -= 1
                if not call.keepers[value]:
                    self.w.free(call.slots.pop(value))
        call.packed -= len(packed)
        if packed and not call.packed and not call.region.reentrant:
            self.w.free_all(call.slots.values())
            self._let_go(call.region.held)

    def _let_go(self, values: Iterable[int]) -> None:
        """One keeper less of each."""
        for value in values:
            self.keepers[value] -= 1
            home = self.slots if value in self.slots else self.lent
            if not self.keepers[value] and value in home:
                self.w.free(home.pop(value))

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
