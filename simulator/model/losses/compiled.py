"""``torch.compile`` of the loss function alone, as torchtitan does: inductor's two fused kernels.

Source: the graphs that AOTAutograd's partitioner and inductor's joint-graph passes make of
``cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))`` in torch 2.13. Forward saves its
input, the logits in their own dtype, and each row's maximum and log of its sum; the cast, the
log-softmax and the softmax are computed again inside the backward kernel. The dense gradient of
``nll_loss`` is no tensor: ``full`` and ``scatter`` become a comparison with the label
(``scatter_upon_const_tensor``). No run on a GPU stands behind the kernels' times: they are priced
as softmax passes over what they read and write.
"""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.losses.loss import Task, Written
from simulator.model.ops.elementwise import cast
from simulator.model.ops.loss import softmax_kernel
from simulator.model.rule import Rule


class Compiled:
    """2 B a bf16 logit kept, and 2 B more for its gradient in backward."""

    projects = False

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """A read of the logits forward; backward reads them again and writes their gradient."""
        logits, returned = x, 0
        if task.choice.upcasts:
            with b.frame(x):
                logits = cast(b, x, DType.FP32, "logits.float")
            returned = b.ops
        return Written(loss=compiled_cross_entropy(b, logits), returned=(returned,))


def compiled_cross_entropy(b: GraphBuilder, logits: int, prefix: str = "") -> int:
    """Two fused kernels; ``prefix`` precedes the names."""
    source, name = b.of(logits), f"{prefix}cross_entropy"
    rows, size = prod(source.shape[:-1]), b.bytes(logits)
    stats = (("row_max", (rows, 1)), ("row_log_sum", (rows, 1)), ("count", (1,)))
    made = [b.value(f"{prefix}{each}", shape, DType.FP32) for each, shape in stats]
    loss = b.value(f"{prefix}loss", (1,), DType.FP32)
    rule = Rule(name, "softmax")
    rule.make("grad", source.shape, source.dtype, value=logits, read=size + 8 * rows)
    b.op(
        name,
        "compiled",
        (logits,),
        (*made, loss),
        softmax_kernel(name, size, 8 * rows + 8),
        saves=(logits, *made),
        rule=rule,
    )
    return loss
