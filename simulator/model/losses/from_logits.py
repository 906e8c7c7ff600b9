"""Losses of whole logits in eager mode: who casts them to fp32, and who holds them how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.losses.loss import Task, Written, shifted_labels
from simulator.model.ops.elementwise import cast
from simulator.model.ops.loss import cross_entropy, triton_cross_entropy
from simulator.model.ops.plain import plain
from simulator.model.rule import Rule

CrossEntropy = Callable[[GraphBuilder, int, tuple[int, ...]], int]
"""(graph, logits, labels that nobody else holds) -> the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLogits:
    """``upcasts``: the model's own forward casts; ``kept``: the loop's variable holds the logits.

    A Python loop's ``pred`` or ``outputs`` lives until it is bound again, when the next forward
    has returned: through backward, the optimizer and the next forward. transformers' ``Trainer``
    returns the loss alone from ``compute_loss``, and holds none. ``shifts``: transformers' loss
    shifts the logits and not the labels. ``triton``: one kernel computes the loss.
    """

    upcasts: bool = False
    kept: bool = False
    shifts: bool = False
    triton: bool = False
    projects: bool = False

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """fp32 copy 4 B a logit, log-softmax 4 B (kept); in backward two gradients of 4 B."""
        logits, returned = x, 0
        if (self.upcasts or task.choice.upcasts) and b.of(x).dtype is not DType.FP32:
            with b.frame(x):
                logits = cast(b, x, DType.FP32, "logits.float")
            returned = b.ops
        compare = triton_cross_entropy if self.triton else cross_entropy
        if task.hf and not (self.upcasts or self.shifts):
            loss = _of_shifted_labels(b, logits)
        else:
            wide = cast(b, logits, DType.FP32, "logits.float")
            with b.frame(*(() if wide == x else (wide,))):
                loss = _of_shifted_logits(b, wide, compare) if task.hf else compare(b, wide, ())
        held = logits if self.kept else None
        return Written(loss=loss, returned=(returned,), held=held)


def _of_shifted_labels(b: GraphBuilder, logits: int) -> int:
    """``ForCausalLMLoss`` of transformers (4.46 and later): fp32 copy, labels padded and shifted.

    ``nll_loss`` keeps the labels.
    """
    batch, seq, _ = b.of(logits).shape
    wide = cast(b, logits, DType.FP32, "logits.float")
    with b.frame(*(() if wide == logits else (wide,))) as frame:
        targets = shifted_labels(b, batch, seq)
        frame.bind(*targets)
        return cross_entropy(b, wide, targets[-1:])


def _of_shifted_logits(b: GraphBuilder, logits: int, cross_entropy: CrossEntropy) -> int:
    """Logits and labels shifted by copies: every model's own forward until transformers 4.45.

    ``ForCausalLMLoss`` of 4.46 to 4.48 casts the logits first, which the model still holds.

    ``contiguous`` of one sequence's slice is the slice itself.
    """
    batch, seq, vocab = b.of(logits).shape
    rule = Rule("logits.shifted")
    rule.make("grad", (batch, seq, vocab), DType.FP32, value=logits)
    shape = (batch, seq - 1, vocab)
    shifted = b.view(logits, "logits.slice", shape, rule)
    with b.frame() as frame:
        if batch > 1:
            copied = b.value("logits.shifted", shape, DType.FP32)
            size = prod(shape) * 4
            kernel = Elementwise(name="logits.shifted", kind="copy", read=size, written=size)
            b.op("logits.shifted", "copy", (shifted,), (copied,), kernel, passes=(shifted,))
            shifted = copied
            frame.bind(copied)
            targets = (plain(b, "labels.shifted", (batch, seq - 1), DType.INT64),)
            frame.bind(*targets)
            return cross_entropy(b, shifted, targets)
        return cross_entropy(b, shifted, ())
