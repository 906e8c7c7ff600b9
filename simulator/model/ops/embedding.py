"""Token embedding (aten::embedding)."""

from __future__ import annotations

from math import prod

from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor
from simulator.model.rule import Rule


def embedding(b: GraphBuilder, batch: int, seq: int, vocab: int, hidden: int, name: str) -> int:
    """Rows of W[vocab, hidden] by token id. Backward makes the dense [vocab, hidden] gradient.

    The ids it keeps are the step's input, owned by the training loop.
    """
    return _lookup(b, (batch, seq, hidden), vocab, name, ())


def position_embedding(b: GraphBuilder, ids: int, rows: int, hidden: int, name: str) -> int:
    """Learned positions: [1, s, hidden] by ids[1, s], which it keeps."""
    return _lookup(b, (1, b.of(ids).shape[-1], hidden), rows, name, (ids,))


def _lookup(
    b: GraphBuilder, shape: tuple[int, int, int], rows: int, name: str, ids: tuple[int, ...]
) -> int:
    weight = b.weight(f"{name}.weight", (rows, shape[-1]))
    out = b.value(f"{name}.out", shape)
    size = b.bytes(out)
    dense = prod(weight.shape) * b.dtype.itemsize
    rule = Rule(name)
    rule.launch(
        Elementwise(name=f"{name}.backward", kind="gather", read=2 * size, written=dense + size),
        GradTensor(
            name=f"{name}.weight.grad", shape=weight.shape, dtype=b.dtype, weight=weight.name
        ),
    )
    kernel = Elementwise(name=name, kind="gather", read=size, written=size)
    b.op(name, "embedding", ids, (out,), kernel, saves=ids, rule=rule)
    return out
