"""SGD with momentum as torch runs it: torch/optim/sgd.py (2.13), ``_multi_tensor_sgd``."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.lowering.optimizer.tensors import MODULE, letters, pass_over, shard_tensor
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Precision
from simulator.program.instructions import Category


class SgdForeach:
    """The momentum buffer is born as a copy of the first gradient; no temporaries."""

    STEPS = (("mul momentum", "m", "m"), ("add gradient", "mg", "m"), ("update", "pm", "p"))

    passes = tuple(name for name, _, _ in STEPS)

    def __init__(self, precision: Precision) -> None:
        self.precision, self.sizes = precision, letters(precision)

    def states(self, w: BlockWriter, shards: Sequence[Shard]) -> None:
        """``torch.clone(grad)``, one a parameter."""
        for shard in shards:
            tensor = shard_tensor(shard, "momentum", self.precision.gradients, Category.OPTIMIZER)
            w.alloc(tensor, slot=w.shared("own", f"momentum.{shard.weight.name}"))
            w.launch(pass_over("sgd.clone", self.sizes, "g", "g", [shard]), MODULE)

    def run_pass(
        self, w: BlockWriter, name: str, shards: Sequence[Shard], *, first: bool, last: bool
    ) -> None:
        """One ``_foreach_*`` call's part in this unit."""
        read, written = next(spec[1:] for spec in self.STEPS if spec[0] == name)
        w.launch(pass_over(f"sgd.{name}", self.sizes, read, written, shards), MODULE)
