"""torchtune's ``CEWithChunkedOutputLoss``: the head projects chunk by chunk, the loss casts so.

Source: torchtune 0.6.1, modules/transformer.py (``chunked_output``) and
modules/loss/ce_chunked_output_loss.py. All chunks' logits exist at once, in the compute dtype, but
only one is in fp32. torchtune's recipes wrap ``output`` alone or leave it to the root; its calls
inside the root's forward find the weight gathered. The head's weight is used once a chunk, so
autograd sums as many gradients of it. torchtitan's decoder, whose norm and head are one unit,
returns whole logits, and its loss can but cut those.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.losses.chunks import Mean, contiguous, cut
from simulator.model.losses.compiled import compiled_cross_entropy
from simulator.model.losses.loss import Task, Written, head_weight
from simulator.model.ops.elementwise import cast
from simulator.model.ops.linear import linear
from simulator.model.ops.loss import cross_entropy


class ChunkedLogits:
    """The same loss of a model that calls its head once: 6 + 4 / N B a logit forward, 4 B kept.

    Logits of several sequences are copied to be cut; their gradients are concatenated.
    """

    projects = False

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """The loop holds the logits until the loss is there."""
        batch, seq, _ = b.of(x).shape
        mean = Mean(b, task, batch, seq)
        with b.frame(x):
            logits = [contiguous(b, piece) for piece in cut(b, x, task.choice.chunks)]
            loss = _mean_of(b, mean, logits, seq, compiles=task.choice.compiles)
            return Written(loss=loss, returned=(0,))


class Chunked:
    """6 + 4 / N B a logit forward, 4 B kept."""

    projects = True

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """The normed state is the model's local: it goes when the model returns."""
        if task.hf:
            with b.frame(x):
                return self._loss(b, x, task)
        return self._loss(b, x, task)

    def _loss(self, b: GraphBuilder, x: int, task: Task) -> Written:
        batch, seq, _ = b.of(x).shape
        mean = Mean(b, task, batch, seq)
        logits, returned = self._project(b, x, task)
        loss = _mean_of(b, mean, logits, seq, compiles=task.choice.compiles)
        return Written(loss=loss, returned=returned)

    def _project(self, b: GraphBuilder, x: int, task: Task) -> tuple[list[int], tuple[int, ...]]:
        weight = head_weight(b, x, task.head)
        logits, returned = [], []
        with b.frame(*(() if task.hf else (x,))):
            for number, chunk in enumerate(cut(b, x, task.choice.chunks)):
                source = contiguous(b, chunk)
                logits.append(linear(b, source, f"logits.{number}", task.head.vocab, shared=weight))
                returned.append(b.ops)
        return logits, tuple(returned)


def _mean_of(
    b: GraphBuilder, mean: Mean, logits: Sequence[int], seq: int, *, compiles: bool
) -> int:
    """The loss over all chunks, each cast to fp32 alone, or compiled.

    torchtune's recipes compile ``compute_cross_entropy`` of this loss; what ``compile_loss``
    returns for any other they drop.
    """
    with b.frame(*logits, *(() if mean.targets is None else (mean.targets,))):
        mean.count(seq)
        targets = [mean.labels(i, b.of(y).shape[1]) for i, y in enumerate(logits)]
        for number, (y, target) in enumerate(zip(logits, targets, strict=True)):
            if compiles:
                mean.add(compiled_cross_entropy(b, y, f"chunk.{number}."))
                continue
            wide = cast(b, y, DType.FP32, f"logits.{number}.float")
            with b.frame(*(() if wide == y else (wide,))):
                mean.add(cross_entropy(b, wide, target, f"chunk.{number}."))
        return mean.result()
