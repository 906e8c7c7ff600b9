"""Token embedding (aten::embedding)."""

from __future__ import annotations

from math import prod

from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor


def embedding(b: GraphBuilder, batch: int, seq: int, vocab: int, hidden: int, name: str) -> int:
    """Rows of W[vocab, hidden] by token id. Backward makes the dense [vocab, hidden] gradient.

    The ids it keeps are the step's input, owned by the training loop.
    """
    weight = b.weight(f"{name}.weight", (vocab, hidden))
    out = b.value(f"{name}.out", (batch, seq, hidden))
    size = b.bytes(out)
    dense = prod(weight.shape) * b.dtype.itemsize
    b.op(
        name,
        "embedding",
        (),
        (out,),
        Elementwise(name=name, kind="gather", read=size, written=size),
        gradients=(
            GradTensor(
                name=f"{name}.weight.grad", shape=weight.shape, dtype=b.dtype, weight=weight.name
            ),
        ),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name=f"{name}.backward", kind="gather", read=2 * size, written=dense + size
                ),
                outputs=(0,),
            ),
        ),
    )
    return out
