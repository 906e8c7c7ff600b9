"""Liger's fused linear cross-entropy: both gradients are computed in forward, chunk by chunk.

Source: liger-kernel 0.8.5, ops/fused_linear_cross_entropy.py. The tokens are cut so that a chunk's
logits are as large as the hidden state: n = ceil(vocab / hidden), and chunks of the next power of
two of ceil(tokens / n). A chunk's logits are overwritten by their gradient in one Triton kernel,
and share one buffer. Forward leaves the gradients of the input and of the weight; backward hands
them on, unscaled where the incoming gradient is one (it reads that on the host). From 0.6.2 (August
2025) to 0.8.2 (August 2026) each chunk had logits of its own, and a weight gradient of its own that
was cast to fp32 before it was added: ``sums_apart``. Triton kernels run on no fake tensor: this is
read, not recorded.

Liger's models skip their head and read ``lm_head.weight`` inside the root's forward, so under FSDP2
the group that holds it must be gathered: it is, in the root or with the norm.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, Given, GradTensor
from simulator.model.losses.chunks import rows_of
from simulator.model.losses.loss import Task, Written, head_weight, shifted_labels
from simulator.model.ops.loss import softmax_kernel
from simulator.model.ops.plain import plain


def chunk_rows(rows: int, vocab: int, hidden: int) -> Iterator[int]:
    """Tokens of each chunk.

    >>> len(list(chunk_rows(4096, 128256, 4096)))
    32
    """
    share = -(-rows // -(-vocab // hidden))
    size = min(1 << (share - 1).bit_length(), rows)
    for first in range(0, rows, size):
        yield min(size, rows - first)


class FusedLinear:
    """2 · tokens · hidden B for the input's gradient, 2 · vocab · hidden for the weight's."""

    projects = True

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """The two gradients are saved by one node, which gives them away."""
        if b.of(x).dtype is DType.FP32:
            raise UnsupportedError("fused-linear is read for 16-bit compute; found fp32")
        batch, seq, _ = b.of(x).shape
        with b.frame(x) as frame:
            targets = shifted_labels(b, batch, seq) if task.hf else ()
            frame.bind(*targets)
            return Written(loss=_Fused(b, x, task).write(targets[-1:]), returned=(0,))


class _Fused:
    """The forward of ``LigerFusedLinearCrossEntropyFunction``, and its node."""

    def __init__(self, b: GraphBuilder, x: int, task: Task) -> None:
        self.b, self.x, self.apart = b, x, task.choice.sums_apart
        self.weight = head_weight(b, x, task.head)
        self.rows, (self.vocab, self.hidden) = rows_of(b.of(x).shape), self.weight.shape
        self.dtype = b.of(x).dtype

    def write(self, targets: tuple[int, ...]) -> int:
        """Gradients first, then chunk by chunk, then the sum of the tokens' losses."""
        b = self.b
        given = plain(b, "grad_input", b.of(self.x).shape, self.dtype)
        summed = None
        if self.weight.trainable:
            summed = plain(b, "grad_weight", self.weight.shape, self.dtype)
        each = plain(b, "loss.tokens", (self.rows,), DType.FP32)
        mask = plain(b, "labels.valid", (self.rows,), DType.BOOL, targets)
        plain(b, "labels.count", (1,), DType.INT64, (mask,))
        with b.frame(each, mask):
            self._chunks(given, summed, targets)
            return self._node(each, given, summed)

    def _chunks(self, given: int, summed: int | None, targets: tuple[int, ...]) -> None:
        sizes = list(chunk_rows(self.rows, self.vocab, self.hidden))
        buffer = None
        for number, rows in enumerate(sizes):
            before = buffer
            if buffer is None or self.apart:
                name = f"chunk.{number}.logits"
                buffer = self.b.value(name, (rows, self.vocab), self.dtype)
                made: tuple[int, ...] = (buffer,)
            else:
                made = ()
            with self.b.frame(buffer):
                kept = () if before is None or not self.apart else (before,)
                self._chunk(number, rows, buffer, made, (*kept, *targets), given)
                if summed is not None:
                    self._weight_gradient(number, rows, buffer, summed)

    def _chunk(
        self,
        number: int,
        rows: int,
        logits: int,
        made: tuple[int, ...],
        others: tuple[int, ...],
        given: int,
    ) -> None:
        """Project, overwrite by the gradient, and multiply it with the weight.

        Python's names hold ``others``, the labels and, where chunks have buffers of their own, the
        chunk before, until the kernel has run.
        """
        b, name, size = self.b, f"chunk.{number}", rows * self.vocab * self.dtype.itemsize
        self._product(f"{name}.logits", (self.x,), made, (rows, self.vocab, self.hidden))
        kernel = softmax_kernel(f"{name}.cross_entropy", 2 * size, size)
        b.op(f"{name}.cross_entropy", "cross_entropy", (logits, *others), (), kernel)
        sources = (logits, given)
        self._product(f"{name}.dgrad", sources, (), (rows, self.hidden, self.vocab))

    def _weight_gradient(self, number: int, rows: int, logits: int, summed: int) -> None:
        """Into the sum, or apart and then added in fp32; none is made of a frozen head."""
        b, name = self.b, f"chunk.{number}"
        product = (self.vocab, self.hidden, rows)
        if not self.apart:
            self._product(f"{name}.wgrad", (logits, self.x, summed), (), product)
            return
        apart = b.value(f"{name}.weight.grad", self.weight.shape, self.dtype)
        self._product(f"{name}.wgrad", (logits, self.x), (apart,), product)
        wide = plain(b, f"{name}.weight.grad.float", self.weight.shape, DType.FP32, (apart,))
        read = b.bytes(wide) + b.bytes(summed)
        add = Elementwise(name=f"{name}.add", kind="copy", read=read, written=b.bytes(summed))
        b.op(f"{name}.add", "add", (wide, summed), (), add)

    def _product(
        self, name: str, inputs: tuple[int, ...], made: tuple[int, ...], shape: tuple[int, int, int]
    ) -> None:
        m, n, k = shape
        kernel = Gemm(name=name, m=m, n=n, k=k, dtype=self.dtype)
        self.b.op(name, "mm", inputs, made, kernel)

    def _node(self, each: int, given: int, summed: int | None) -> int:
        """``torch.sum``; backward compares the incoming gradient with one, and gives its own."""
        b = self.b
        loss = b.value("loss", (1,), DType.FP32)
        read = b.bytes(each)
        one = Elementwise(name="is_one", kind="copy", read=4, written=4)
        gives = [Given(saved=given, value=self.x)]
        if summed is not None:
            gives.append(Given(saved=summed, weight=self.weight.name))
        b.op(
            "loss",
            "fused_linear",
            (each, *(each_given.saved for each_given in gives)),
            (loss,),
            Elementwise(name="loss", kind="copy", read=read, written=4),
            gradients=(GradTensor(name="one", shape=(1,), dtype=DType.FP32),),
            backward=(BackwardStep(kernel=one, outputs=(0,), frees=(0,)),),
            gives=gives,
        )
        return loss
