"""Cross-entropy: torch's log-softmax and negative log-likelihood, or one Triton kernel."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, Given, GradTensor
from simulator.model.rule import Rule


def cross_entropy(
    b: GraphBuilder, logits: int, targets: tuple[int, ...] = (), prefix: str = ""
) -> int:
    """The loss of [batch, seq, vocab] logits, reduced; all in their dtype.

    Log-softmax is kept; backward makes a dense zero-filled gradient, then the log-softmax's.
    ``targets``: labels that nobody else holds; ``prefix`` precedes the names.
    """
    return _nll_loss(b, _log_softmax(b, logits, prefix), targets, prefix)


def triton_cross_entropy(b: GraphBuilder, logits: int, targets: tuple[int, ...] = ()) -> int:
    """Unsloth's kernel, as fms-acceleration has it: the logits are overwritten by their gradient.

    Kept: the logits and 4 B a row for the log of each sum. Source: fms-acceleration-foak 0.7.4
    kernels/unsloth/cross_entropy_loss.py, ``Fast_CrossEntropyLoss``.
    """
    rows, read, name = prod(b.of(logits).shape[:-1]), b.bytes(logits), "cross_entropy"
    each, sums = (b.value(f"{name}.{part}", (rows,), DType.FP32) for part in ("each", "log_sum"))
    kernel = softmax_kernel(name, read, 8 * rows)
    backward = BackwardStep(kernel=softmax_kernel(f"{name}.backward", read, read), outputs=())
    b.op(
        name,
        "triton",
        (logits, *targets),
        (each, sums),
        kernel,
        saves=(sums, *targets),
        backward=(backward,),
        gives=(Given(saved=b.root(logits), value=logits),),
    )
    loss, mean = b.value("loss", (1,), DType.FP32), Rule("mean")
    mean.make("grad", (1,), DType.FP32, value=each)
    total = Elementwise(name="mean", kind="copy", read=4 * rows, written=4)
    b.op("mean", "sum", (each,), (loss,), total, rule=mean)
    return loss


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
