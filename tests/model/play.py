"""Plays a decoder's graphs as PyTorch would run them: every allocation and free, in bytes.

A small interpreter of what the graphs state, without frameworks or checkpointing: forward, loss,
backward. Storages are counted references: Python's one, and one for each node that keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from simulator.model.decoder import Decoder
from simulator.model.graph import BackwardStep, GradTensor, Graph, Op


@dataclass
class Storage:
    name: str
    bytes: int
    holders: int = 1


@dataclass
class Pass:
    """One graph's run: its storages by value number."""

    graph: Graph
    storages: dict[int, Storage]


@dataclass
class Player:
    decoder: Decoder
    events: list[tuple[str, int, str]] = field(default_factory=list)
    lent: dict[str, Storage] = field(default_factory=dict)
    weights: dict[str, Storage] = field(default_factory=dict)

    def run(self) -> list[tuple[str, int, str]]:
        """(``A`` or ``F``, bytes, name) in order; the loss goes last."""
        passes, hidden = [], None
        graphs = [
            self.decoder.embedding,
            *self.decoder.blocks,
            self.decoder.head,
            self.decoder.loss,
        ]
        for graph in graphs:
            passes.append(self.forward(graph, hidden))
            hidden = passes[-1].storages[graph.output]
        for one in passes:
            for number in (*one.graph.through_loss, *one.graph.until_loss):
                self.drop(one.storages[number])
        root = self.alloc("ones_like", 4)
        root.holders = 2
        gradient: Storage | None = root
        for number, one in reversed(list(enumerate(passes))):
            assert gradient is not None
            gradient = self.backward(one, gradient, str(number))
        self.drop(root)
        assert hidden is not None
        self.drop(hidden)
        return self.events

    def alloc(self, name: str, size: int) -> Storage:
        if size:
            self.events.append(("A", size, name))
        return Storage(name, size)

    def drop(self, storage: Storage) -> None:
        storage.holders -= 1
        assert storage.holders >= 0, storage
        if not storage.holders and storage.bytes:
            self.events.append(("F", storage.bytes, storage.name))

    def forward(self, graph: Graph, hidden: Storage | None) -> Pass:
        storages: dict[int, Storage] = {}
        if graph.input is not None and hidden is not None:
            storages[graph.input] = hidden
        for number in graph.borrows:
            storages[number] = self.lent[graph.values[number].name]
        released = set()
        for op in graph.ops:
            for number in op.outputs:
                value = graph.values[number]
                if value.base is None:
                    storages[number] = self.alloc(
                        f"{graph.name}/{value.name}", prod(value.shape) * value.dtype.itemsize
                    )
            for number in (*op.saves, *op.borrows):
                storages[number].holders += 1
            for number in set(op.outputs) & set(graph.until_loss):
                storages[number].holders += 1
            for number in op.releases:
                released.add(number)
                self.drop(storages[number])
        for number in graph.lends:
            self.lent[graph.values[number].name] = storages[number]
        lent = any(hidden is each for each in self.lent.values())
        if graph.input is not None and graph.input not in released and not lent:
            self.drop(storages[graph.input])
        for number in (*graph.until_return, *graph.returns):
            self.drop(storages[number])
        return Pass(graph, storages)

    def backward(self, one: Pass, incoming: Storage, tag: str) -> Storage | None:
        graph = one.graph
        pending: dict[int, Storage] = {graph.output: incoming}
        for op in reversed(graph.ops):
            arrived = [pending.pop(number) for number in op.outputs if number in pending]
            if not arrived:
                assert not {*op.saves, *op.borrows}, op.name
                continue
            self.node(one, op, arrived, pending, tag)
        return None if graph.input is None else pending[graph.input]

    def node(
        self, one: Pass, op: Op, arrived: list[Storage], pending: dict[int, Storage], tag: str
    ) -> None:
        if op.accumulates:
            self.accumulate(one.graph, op.accumulates, arrived[0], tag)
            return
        results: list[tuple[int, Storage]] = []
        weights: list[tuple[str, Storage]] = []
        for value in op.passes:
            arrived[0].holders += 1
            results.append((value, arrived[0]))
        made: list[Storage] = []
        for step in op.backward:
            self.step(step, op.gradients, made, arrived)
        for gradient, storage in zip(op.gradients, made, strict=True):
            if gradient.value is not None:
                results.append((gradient.value, storage))
            elif gradient.weight is not None:
                weights.append((gradient.weight, storage))
        for storage in arrived:
            self.drop(storage)
        for number in (*op.saves, *op.borrows):
            self.drop(one.storages[number])
        for value, storage in results:
            self.deliver(one.graph, pending, value, storage)
        for name, storage in weights:
            self.accumulate(one.graph, name, storage, tag)

    def step(
        self,
        step: BackwardStep,
        gradients: tuple[GradTensor, ...],
        made: list[Storage],
        arrived: list[Storage],
    ) -> None:
        for number in step.outputs:
            gradient = gradients[number]
            assert number == len(made)
            made.append(self.alloc(gradient.name, prod(gradient.shape) * gradient.dtype.itemsize))
        for number in step.frees:
            self.drop(made[number])
        if step.drops_incoming:
            for storage in arrived:
                self.drop(storage)
            arrived.clear()

    def deliver(
        self, graph: Graph, pending: dict[int, Storage], value: int, storage: Storage
    ) -> None:
        other = pending.get(value)
        if other is None:
            pending[value] = storage
            return
        known = graph.values[value]
        size = prod(known.shape) * known.dtype.itemsize
        pending[value] = self.alloc(f"{known.name}.grad_sum", size)
        self.drop(other)
        self.drop(storage)

    def accumulate(self, graph: Graph, name: str, storage: Storage, tag: str) -> None:
        tied = any(weight.tied and weight.name == name for weight in graph.weights)
        key = f"0/{name}" if tied else f"{tag}/{name}"
        other = self.weights.get(key)
        if other is None:
            self.weights[key] = storage
            return
        self.weights[key] = self.alloc(f"{name}.sum", storage.bytes)
        self.drop(other)
        self.drop(storage)
