"""Cross-entropy over the vocabulary, one function an implementation."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.ops.elementwise import cast
from simulator.model.ops.plain import plain
from simulator.model.rule import Rule


def eager_cross_entropy(b: GraphBuilder, logits: int) -> int:
    """``cross_entropy(logits.float(), labels)`` op by op, as torchtitan's uncompiled loss.

    fp32 copy 4 B, log-softmax 4 B (kept) a logit; backward makes a dense zero-filled fp32
    gradient, the log-softmax's gradient (4 B each) and casts it back (2 B).
    """
    batch, seq, vocab = b.of(logits).shape
    fp32 = DType.FP32
    rows = (batch * seq, vocab)
    size = prod(rows) * 4
    wide = logits if b.of(logits).dtype is fp32 else cast(b, logits, fp32, "logits.float")
    with b.frame(*(() if wide == logits else (wide,))):
        return _nll_loss(b, _log_softmax(b, wide, rows, size), ())


def causal_lm_loss(b: GraphBuilder, logits: int) -> int:
    """``ForCausalLMLoss`` of transformers (4.46 and later): fp32 copy, labels padded and shifted.

    The shifted labels are a copy unless the batch is 1; ``nll_loss`` keeps them.
    """
    batch, seq, vocab = b.of(logits).shape
    rows = (batch * seq, vocab)
    fp32 = DType.FP32
    wide = logits if b.of(logits).dtype is fp32 else cast(b, logits, fp32, "logits.float")
    with b.frame(*(() if wide == logits else (wide,))) as frame:
        targets = plain(b, "labels.padded", (batch, seq + 1), DType.INT64)
        frame.bind(targets)
        if batch > 1:
            targets = plain(b, "labels.shifted", (batch, seq), DType.INT64, (targets,))
            frame.bind(targets)
        return _nll_loss(b, _log_softmax(b, wide, rows, prod(rows) * 4), (targets,))


def _nll_loss(b: GraphBuilder, logprobs: int, targets: tuple[int, ...]) -> int:
    """Mean reduction: keeps the log-softmax, the total weight and the targets."""
    rows, fp32 = b.of(logprobs).shape, DType.FP32
    loss = b.value("loss", (1,), fp32)
    weight = b.value("total_weight", (1,), fp32)
    rule = Rule("nll_loss")
    rule.make("grad", rows, fp32, value=logprobs, read=0)
    b.op(
        "nll_loss",
        "nll_loss",
        (logprobs, *targets),
        (loss, weight),
        Elementwise(name="nll_loss", kind="softmax", read=rows[0] * 4, written=8),
        saves=(weight, *targets, logprobs),
        rule=rule,
    )
    return loss


def _log_softmax(b: GraphBuilder, x: int, rows: tuple[int, int], size: int) -> int:
    out = b.value("log_softmax", rows, DType.FP32)
    b.op(
        "log_softmax",
        "log_softmax",
        (x,),
        (out,),
        Elementwise(name="log_softmax", kind="softmax", read=size, written=size),
        saves=(out,),
        gradients=(GradTensor(name="log_softmax.grad", shape=rows, dtype=DType.FP32, value=x),),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name="log_softmax.backward", kind="softmax", read=2 * size, written=size
                ),
                outputs=(0,),
            ),
        ),
    )
    return out
