"""Writes a graph op by op, with the lifetimes that Python gives to its values.

A value that no frame binds dies after its last reader. A value bound to a *frame*, the arguments
and locals of a running ``forward``, dies when the frame returns, or after its last reader if it
is handed on. A view keeps its storage alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from simulator.dtypes import DType
from simulator.fine_tuning import Adapters, FineTuning
from simulator.kernels import Elementwise, Kernel
from simulator.model.decoder import BLOCK
from simulator.model.float8 import Float8, takes_float8
from simulator.model.graph import (
    VIEW,
    BackwardStep,
    Given,
    GradTensor,
    Graph,
    Op,
    Part,
    Value,
    Weight,
)
from simulator.model.rule import Rule


class Frame:
    """The values that the locals of one running Python function hold."""

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound: list[int] = []

    def bind(self, *values: int) -> None:
        """Hold ``values`` until the function returns."""
        self.bound.extend(values)


class GraphBuilder:
    """Collects values, weights and ops; ``build`` settles when each value is released."""

    def __init__(
        self,
        name: str,
        dtype: DType,
        autocast: DType | None = None,
        tuning: FineTuning | None = None,
        float8: Float8 | None = None,
    ) -> None:
        self.name, self.dtype, self.autocast, self.tuning = name, dtype, autocast, tuning
        self.float8 = float8 if name.startswith(BLOCK) else None
        self.cast_already: dict[int, tuple[int, ...]] = {}
        self.module = name
        self._values: list[Value] = []
        self._weights: list[Weight] = []
        self._ops: list[Op] = []
        self._parts: list[Part] = []
        self._borrowed: list[int] = []
        self._tables: list[int] = []
        self._until_loss: list[int] = []
        self._casts: list[int] = []
        self._returns: list[int] = []
        self._parameters: list[int] = []
        self._until_end: list[int] = []
        self._released_after: dict[int, int] = {}
        self._release_order: list[int] = []

    def value(self, name: str, shape: Sequence[int], dtype: DType | None = None) -> int:
        """A new storage of the current module."""
        self._values.append(
            Value(name=name, shape=tuple(shape), dtype=dtype or self.dtype, module=self.module)
        )
        return len(self._values) - 1

    def hold_until_loss(self, value: int) -> None:
        """The training step's context holds ``value`` until the loss is there."""
        self._until_loss.append(value)

    def hold_until_end(self, value: int) -> None:
        """A local of the graph's own function holds ``value`` until it returns."""
        self._until_end.append(value)

    def cast_argument(self, value: int) -> int:
        """What the framework's hook passes instead of ``value``: a copy in the graph's dtype."""
        assert len(self._ops) == len(self._casts)
        known = self._values[value]
        out = self.value(f"{known.name}.cast", known.shape)
        kernel = Elementwise(
            name=f"{known.name}.cast", kind="copy", read=known.bytes, written=self.bytes(out)
        )
        self.op(f"{known.name}.cast", "plain", (value,), (out,), kernel)
        self._casts.append(out)
        return out

    def return_too(self, value: int) -> None:
        """The module returns ``value`` beside its output."""
        self._returns.append(value)

    def borrow(self, name: str, shape: Sequence[int], dtype: DType | None = None) -> int:
        """A storage that the embedding's graph lends under that name; once a graph."""
        for known in self._borrowed:
            if self._values[known].name == name:
                return known
        number = self.value(name, shape, dtype)
        self._borrowed.append(number)
        return number

    def table(self, name: str, shape: Sequence[int], dtype: DType) -> int:
        """A buffer of the model that the graph is passed; once a graph."""
        for known in self._tables:
            if self._values[known].name == name:
                return known
        self._tables.append(self.value(name, shape, dtype))
        return self._tables[-1]

    def view(self, x: int, name: str, shape: Sequence[int], rule: Rule | None = None) -> int:
        """A view of x. Without a rule the gradient itself is handed to x, as a view."""
        (out,) = self.views(x, name, {name: shape}, rule)
        return out

    def views(
        self, x: int, name: str, shapes: Mapping[str, Sequence[int]], rule: Rule | None = None
    ) -> tuple[int, ...]:
        """Several views made by one op."""
        outputs = [self.alias(x, each, shape) for each, shape in shapes.items()]
        nothing = Elementwise(name=name, kind="copy", read=0, written=0)
        self.op(name, VIEW, (x,), outputs, nothing, passes=() if rule else (x,), rule=rule)
        return tuple(outputs)

    def alias(self, x: int, name: str, shape: Sequence[int] | None = None) -> int:
        """A value in x's storage, of its shape if none is given; the op that makes it is apart."""
        known = self._values[x]
        number = self.value(name, shape or known.shape, known.dtype)
        self._values[number] = replace(self._values[number], base=self.root(x))
        return number

    @property
    def ops(self) -> int:
        """How many ops are written so far."""
        return len(self._ops)

    def parameter(self, weight: Weight) -> int:
        """A weight as a value that several ops read and whose gradients are summed."""
        number = self.value(weight.name, weight.shape)
        self._values[number] = replace(self._values[number], base=number)
        self._parameters.append(number)
        nothing = Elementwise(name=weight.name, kind="copy", read=0, written=0)
        self.op(weight.name, VIEW, (), (number,), nothing, accumulates=weight.name)
        return number

    def root(self, value: int) -> int:
        """The storage of a value: itself, or what it is a view of."""
        base = self._values[value].base
        return value if base is None else base

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        *,
        tied: bool = False,
        trainable: bool | None = None,
        dtype: DType | None = None,
        routed: int = 0,
    ) -> Weight:
        """The parameter of that name; registered, in the current module, when first asked for.

        ``trainable``: None is as the fine-tuning has the module.
        """
        for known in self._weights:
            if known.name == name:
                return known
        adapter = trainable is not None
        if trainable is None:
            trainable = self.tuning is None or self.tuning.trains(self.module)
        nf4 = self.tuning.base if self.tuning else None
        if adapter or len(shape) != 2 or not self.module.startswith("layers"):
            nf4 = None
        weight = Weight(
            name=name,
            shape=tuple(shape),
            module=self.module,
            tied=tied,
            trainable=trainable,
            dtype=self._dtype(name, dtype) if nf4 is None else DType.BF16,
            nf4=nf4,
            routed=routed,
            gathered=DType.FP8 if self._gathers_float8(shape) else None,
        )
        self._weights.insert(self._place(name) if adapter else len(self._weights), weight)
        return weight

    def _dtype(self, name: str, given: DType | None) -> DType | None:
        """A weight's own; trl's ``peft_module_casting_to_bf16`` casts what is called a norm."""
        wide = self.tuning is not None and self.tuning.wide_norms and "norm" in name
        return DType.FP32 if wide else given

    def _place(self, adapter: str) -> int:
        """Where an adapter's weight is registered: behind those of its linear."""
        linear = f"{adapter.partition('.lora_')[0]}."
        return max(i for i, known in enumerate(self._weights) if known.name.startswith(linear)) + 1

    def _gathers_float8(self, shape: Sequence[int]) -> bool:
        gathered = self.float8 is not None and self.float8.gathered
        return gathered and len(shape) == 2 and takes_float8(shape)

    def adapters_of(self, linear: str) -> Adapters | None:
        """The adapters that stand beside the linear of that name."""
        adapters = self.tuning.adapters if self.tuning else None
        if adapters is None or not adapters.chooses(linear, in_block=self.module != "head"):
            return None
        return adapters

    def of(self, value: int) -> Value:
        """What is known of a value."""
        return self._values[value]

    def bytes(self, value: int) -> int:
        """Unrounded bytes of a value's elements."""
        return self._values[value].bytes

    def op(
        self,
        name: str,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        kernel: Kernel,
        *,
        saves: Sequence[int] = (),
        passes: Sequence[int] = (),
        gradients: Sequence[GradTensor] = (),
        backward: Sequence[BackwardStep] = (),
        rule: Rule | None = None,
        accumulates: str = "",
        gives: Sequence[Given] = (),
    ) -> None:
        """Append one op in host order; ``rule`` stands for ``gradients`` and ``backward``."""
        kept = tuple(dict.fromkeys(map(self.root, saves)))
        made = rule.gradients if rule else gradients
        self._ops.append(
            Op(
                name=name,
                kind=kind,
                module=self.module,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                kernel=kernel,
                saves=tuple(value for value in kept if value not in self._borrowed),
                passes=tuple(passes),
                gradients=tuple(map(self._read_storages, made)),
                backward=rule.steps if rule else tuple(backward),
                borrows=tuple(value for value in kept if value in self._borrowed),
                accumulates=accumulates,
                gives=tuple(gives),
            )
        )

    def _read_storages(self, made: GradTensor) -> GradTensor:
        if made.reads is None:
            return made
        return replace(made, reads=tuple(map(self.root, made.reads)))

    @contextmanager
    def part(self, name: str, unread: Sequence[int] = ()) -> Iterator[None]:
        """A function call that can be checkpointed alone; ``unread``: arguments of no use to it."""
        first = len(self._ops)
        yield
        part = Part(name=name, first=first, end=len(self._ops), unread=tuple(unread))
        self._parts.append(part)

    def lent(self, name: str) -> tuple[int, ...]:
        """The storage that is borrowed under that name, if it is."""
        return tuple(value for value in self._borrowed if self._values[value].name == name)

    @contextmanager
    def frame(self, *arguments: int) -> Iterator[Frame]:
        """A function call: what it binds lives until it returns."""
        frame = Frame()
        yield frame
        frame.bind(*arguments)
        for value in map(self.root, frame.bound):
            self._released_after[value] = len(self._ops) - 1
            self._release_order.append(value)

    def build(
        self,
        *,
        input: int | None,
        output: int,
        lends: Sequence[int] = (),
        until_return: Sequence[int] = (),
        through_loss: Sequence[int] = (),
        until_next: int | None = None,
    ) -> Graph:
        """Freeze the graph. What the caller holds is released here only if a frame bound it."""
        with self.frame(*self._until_end):
            pass
        last = dict(self._last_reader())
        for value, index in self._released_after.items():
            last[value] = max(index, last.get(value, index))
        held = {input, *self._borrowed, *self._tables} - set(self._released_after)
        held |= set(self._parameters)
        until_return = (*until_return, *self._casts)
        outliving = {output, until_next, *lends, *until_return, *through_loss, *self._returns}
        releases: dict[int, list[int]] = {}
        unbound = (v for v in last if v not in self._released_after)
        for value in (*unbound, *dict.fromkeys(self._release_order)):
            if value not in held and value not in outliving:
                releases.setdefault(last[value], []).append(value)
        ops = tuple(
            replace(op, releases=tuple(releases[i])) if i in releases else op
            for i, op in enumerate(self._ops)
        )
        return Graph(
            name=self.name,
            values=tuple(self._values),
            ops=ops,
            weights=tuple(self._weights),
            input=input,
            output=output,
            lends=tuple(lends),
            borrows=tuple(self._borrowed),
            until_loss=tuple(self._until_loss),
            until_return=tuple(until_return),
            parts=tuple(self._parts),
            tables=tuple(self._tables),
            through_loss=tuple(through_loss),
            until_next=until_next,
            casts=len(self._casts),
            returns=tuple(self._returns),
        )

    def _last_reader(self) -> Iterator[tuple[int, int]]:
        for index, op in enumerate(self._ops):
            for value in (*op.outputs, *op.inputs):
                yield self.root(value), index
