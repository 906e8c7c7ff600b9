"""Writes a graph op by op, with the lifetimes that Python gives to its values.

A value that no frame binds dies after its last reader. A value bound to a *frame*, the arguments
and locals of a running ``forward``, dies when the frame returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Kernel
from simulator.model.graph import BackwardStep, GradTensor, Graph, Op, Value, Weight


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

    def __init__(self, name: str, dtype: DType) -> None:
        self.name, self.dtype = name, dtype
        self.module = name
        self._values: list[Value] = []
        self._weights: list[Weight] = []
        self._ops: list[Op] = []
        self._released_after: dict[int, int] = {}
        self._release_order: list[int] = []

    def value(self, name: str, shape: Sequence[int], dtype: DType | None = None) -> int:
        """A new storage of the current module."""
        self._values.append(
            Value(name=name, shape=tuple(shape), dtype=dtype or self.dtype, module=self.module)
        )
        return len(self._values) - 1

    def weight(self, name: str, shape: Sequence[int]) -> Weight:
        """The parameter of that name; registered, in the current module, when first asked for."""
        for known in self._weights:
            if known.name == name:
                return known
        weight = Weight(name=name, shape=tuple(shape), module=self.module)
        self._weights.append(weight)
        return weight

    def of(self, value: int) -> Value:
        """What is known of a value."""
        return self._values[value]

    def bytes(self, value: int) -> int:
        """Unrounded bytes of a value's storage."""
        known = self._values[value]
        return prod(known.shape) * known.dtype.itemsize

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
    ) -> None:
        """Append one op in host order."""
        self._ops.append(
            Op(
                name=name,
                kind=kind,
                module=self.module,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                kernel=kernel,
                saves=tuple(saves),
                passes=tuple(passes),
                gradients=tuple(gradients),
                backward=tuple(backward),
            )
        )

    @contextmanager
    def frame(self, *arguments: int) -> Iterator[Frame]:
        """A function call: what it binds lives until it returns."""
        frame = Frame()
        yield frame
        frame.bind(*arguments)
        for value in frame.bound:
            self._released_after[value] = len(self._ops) - 1
            self._release_order.append(value)

    def build(self, *, input: int | None, output: int) -> Graph:
        """Freeze the graph. The caller's input and the output are not released inside."""
        last = dict(self._last_reader())
        last.update(self._released_after)
        releases: dict[int, list[int]] = {}
        unbound = (v for v in last if v not in self._released_after)
        for value in (*unbound, *dict.fromkeys(self._release_order)):
            if value not in (input, output):
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
        )

    def _last_reader(self) -> Iterator[tuple[int, int]]:
        for index, op in enumerate(self._ops):
            for value in (*op.outputs, *op.inputs):
                yield value, index
