"""What losses that cut the sequence share: the chunks, the labels of each, and their mean."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.losses.loss import Task, shifted_labels
from simulator.model.ops.plain import plain
from simulator.model.rule import Rule


def lengths(seq: int, chunks: int) -> Iterator[int]:
    """``Tensor.chunk``: pieces of ceil(seq / chunks), the last one shorter.

    >>> list(lengths(10, 4))
    [3, 3, 3, 1]
    """
    each = -(-seq // chunks)
    for first in range(0, seq, each):
        yield min(each, seq - first)


def cut(b: GraphBuilder, x: int, chunks: int) -> tuple[int, ...]:
    """Views of [batch, seq, hidden] along the sequence; backward concatenates their gradients."""
    batch, seq, hidden = b.of(x).shape
    rule = Rule("chunks")
    rule.make("cat", (batch, seq, hidden), b.of(x).dtype, value=x)
    shapes = {
        f"chunk.{number}": (batch, length, hidden)
        for number, length in enumerate(lengths(seq, chunks))
    }
    return b.views(x, "chunks", shapes, rule)


def contiguous(b: GraphBuilder, x: int) -> int:
    """A chunk as a matrix product wants it: copied unless it is of one sequence."""
    shape, dtype, name = b.of(x).shape, b.of(x).dtype, f"{b.of(x).name}.copy"
    if shape[0] == 1:
        return x
    out = b.value(name, shape, dtype)
    b.op(name, "copy", (x,), (out,), copy_kernel(name, b.bytes(out)), passes=(x,))
    return out


def copy_kernel(name: str, size: int) -> Elementwise:
    """A copy of so many bytes."""
    return Elementwise(name=name, kind="copy", read=size, written=size)


class Mean:
    """``total = 0.0; total += loss`` chunk by chunk, then ``total / labels``."""

    def __init__(self, b: GraphBuilder, task: Task, batch: int, seq: int) -> None:
        """transformers' loss shifts the labels first; then those not ignored are counted."""
        self.b, self.batch = b, batch
        self.targets = shifted_labels(b, batch, seq)[-1] if task.hf else None
        self._sums = 0
        self._total: int | None = None
        self._count: int | None = None

    def count(self, seq: int) -> None:
        """``(labels != ignore_index).sum()``."""
        valid = plain(self.b, "labels.valid", (self.batch, seq), DType.BOOL)
        self._count = plain(self.b, "labels.count", (1,), DType.INT64, (valid,))

    def labels(self, number: int, length: int) -> tuple[int, ...]:
        """The labels of one chunk, where they are not the training loop's own."""
        if self.batch > 1:
            name = f"labels.{number}"
            return (plain(self.b, name, (self.batch, length), DType.INT64),)
        return () if self.targets is None else (self.targets,)

    def add(self, loss: int) -> None:
        """The first sum is a new tensor, the others are in place."""
        b, name = self.b, f"total.{self._sums}"
        kernel = Elementwise(name="total", kind="copy", read=8, written=4)
        before = () if self._total is None else (self._total,)
        inputs = (*before, loss)
        total = b.alias(before[0], name, (1,)) if before else b.value(name, (1,), DType.FP32)
        b.op(name, "add", inputs, (total,), kernel, passes=inputs)
        self._total, self._sums = total, self._sums + 1

    def result(self) -> int:
        """Their mean."""
        assert self._total is not None
        assert self._count is not None
        loss, kernel = self.b.value("loss", (1,), DType.FP32), copy_kernel("mean", 8)
        rule = Rule("mean")
        rule.make("grad", (1,), DType.FP32, value=self._total)
        inputs = (self._total, self._count)
        self.b.op("mean", "div", inputs, (loss,), kernel, saves=(self._count,), rule=rule)
        return loss


def rows_of(shape: tuple[int, ...]) -> int:
    """Tokens of [batch, seq, ...]."""
    return prod(shape[:2])
