"""What lies beside a quantised weight: whole on every rank, for the whole run."""

from __future__ import annotations

from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Weight
from simulator.program.instructions import Category, Tensor


def alloc_states(w: BlockWriter, weight: Weight) -> None:
    """Allocate the scales and code books of one weight; none where it is not quantised.

    They are attributes of the parameter, not parameters, so no framework shards them.
    """
    if weight.nf4 is None:
        return
    for name, numel, dtype in weight.nf4.states(weight.numel):
        tensor = Tensor(
            name=f"{weight.name}.{name}",
            shape=(numel,),
            dtype=dtype,
            category=Category.BUFFERS,
            module=weight.module,
        )
        w.alloc(tensor, slot=w.shared("own", f"buffer.{weight.name}.{name}"))
