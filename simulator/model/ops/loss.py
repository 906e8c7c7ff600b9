"""``F.cross_entropy`` as torch runs it: log-softmax, then the negative log-likelihood."""

from __future__ import annotations

from math import prod

from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.rule import Rule


def cross_entropy(
    b: GraphBuilder, logits: int, targets: tuple[int, ...] = (), prefix: str = ""
) -> int:
    """The loss of [batch, seq, vocab] logits, reduced; all in their dtype.

    Log-softmax is kept; backward makes a dense zero-filled gradient, then the log-softmax's.
    ``targets``: labels that nobody else holds; ``prefix`` precedes the names.
    """
    return _nll_loss(b, _log_softmax(b, logits, prefix), targets, prefix)


def softmax_kernel(name: str, read: int, written: int) -> Elementwise:
    """A pass over rows of the vocabulary."""
    return Elementwise(name=name, kind="softmax", read=read, written=written)


def _log_softmax(b: GraphBuilder, x: int, prefix: str) -> int:
    """[batch·seq, vocab]; its own result is what backward needs."""
    batch, seq, vocab = b.of(x).shape
    rows, dtype, name = (batch * seq, vocab), b.of(x).dtype, f"{prefix}log_softmax"
    size = prod(rows) * dtype.itemsize
    out = b.value(name, rows, dtype)
    b.op(
        name,
        "log_softmax",
        (x,),
        (out,),
        softmax_kernel(name, size, size),
        saves=(out,),
        gradients=(GradTensor(name=f"{name}.grad", shape=rows, dtype=dtype, value=x),),
        backward=(
            BackwardStep(
                kernel=softmax_kernel(f"{name}.backward", 2 * size, size),
                outputs=(0,),
            ),
        ),
    )
    return out


def _nll_loss(b: GraphBuilder, logprobs: int, targets: tuple[int, ...], prefix: str) -> int:
    """Keeps the log-softmax, the total weight and the targets."""
    rows, dtype, name = b.of(logprobs).shape, b.of(logprobs).dtype, f"{prefix}nll_loss"
    loss = b.value(f"{prefix}loss", (1,), dtype)
    weight = b.value(f"{prefix}total_weight", (1,), dtype)
    rule = Rule(name)
    rule.make("grad", rows, dtype, value=logprobs, read=0)
    b.op(
        name,
        "nll_loss",
        (logprobs, *targets),
        (loss, weight),
        softmax_kernel(name, rows[0] * 4, 8),
        saves=(weight, *targets, logprobs),
        rule=rule,
    )
    return loss
