"""AccumulateGrad: what becomes of a weight's gradient when autograd has made it.

The engine runs it before any other node. A first gradient is taken as it is, a later one added in
place; the two of a weight that two modules share meet before, and are summed out of place
(torch/csrc/autograd/functions/accumulate_grad.h, input_buffer.cpp).
"""

from __future__ import annotations

from collections.abc import Collection

from simulator.kernels import Elementwise
from simulator.lowering.framework.hooks import Backward
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import GradTensor, Graph
from simulator.program.instructions import Category, Tensor


class AccumulateGrad:
    """The nodes of one graph's weights; ``gradients`` are their slots so far, by name.

    ``shared``: names of the weights here that another module, whose backward came before, uses too.
    """

    def __init__(
        self, w: BlockWriter, graph: Graph, hooks: Backward, shared: Collection[str]
    ) -> None:
        self.w, self.hooks, self._shared = w, hooks, shared
        self._weights = {weight.name: weight for weight in graph.weights}
        self._existing = hooks.existing(w)
        self.gradients: dict[str, int] = {}

    def run(self, made: GradTensor, slot: int) -> None:
        """Take a gradient that has arrived in ``slot``."""
        name = made.weight
        assert name is not None
        module = self._weights[name].module
        if self._weights[name].tied:
            self.w.promote(slot, "embed", f"tied.{name}")
            return
        if name in self._shared:
            slot = self._sum(made, slot, module)
        if name in self._existing:
            kernel = _add(f"{made.name}.add", made.bytes)
            self.w.launch(kernel, module)
            self.w.free(slot)
            slot = self._existing[name]
        self.gradients[name] = slot
        self.hooks.accumulated(self.w, name, slot)

    def _sum(self, made: GradTensor, slot: int, module: str) -> int:
        tensor = Tensor(
            name=f"{made.weight}.grad_sum",
            shape=made.shape,
            dtype=made.dtype,
            category=Category.UNSHARDED_GRADIENTS,
            module=module,
        )
        total = self.w.alloc(tensor)
        self.w.launch(_add(tensor.name, tensor.requested), module)
        self.w.free_all((self.w.shared("own", f"tied.{made.weight}"), slot))
        return total


def _add(name: str, size: int) -> Elementwise:
    return Elementwise(name=name, kind="copy", read=2 * size, written=size)
