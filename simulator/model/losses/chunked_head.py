"""Head and cross-entropy chunk by chunk under activation checkpointing.

No chunk's logits outlive it: forward drops them and backward projects again. The head's weight is
used once a chunk, so autograd sums as many gradients of it; while two meet there are three tensors
of its size: the running sum, the new gradient and their sum.

The model's forward skips its head and returns the normed state; the loss reads the head's weight
itself, which its FSDP2 group has gathered by then: in the root, or with the norm, whose call
gathers the group. No hook runs around the chunks. FSDP2 completes the skipped head's forward when
the root's ends (torch 2.13, ``_force_complete_incomplete_states``). torchtune's and torchtitan's
own losses of this kind call the head as a module instead, and torchtitan's (0.3) runs each chunk's
backward inside the loss, with resharding and reduction switched off until the last.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor, Weight
from simulator.model.losses.chunks import Mean, copy_kernel, cut, rows_of
from simulator.model.losses.loss import Task, Written, head_weight
from simulator.model.ops.loss import softmax_kernel
from simulator.model.ops.plain import plain
from simulator.model.rule import Rule


class ChunkedHead:
    """8 / N B a logit forward, none kept, 12 / N in backward."""

    projects = True

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """Each chunk's checkpoint keeps its input, a view of the normed state."""
        batch, seq, _ = b.of(x).shape
        mean = Mean(b, task, batch, seq)
        weight = head_weight(b, x, task.head)
        with b.frame(*(() if mean.targets is None else (mean.targets,))):
            mean.count(seq)
            for number, chunk in enumerate(cut(b, x, task.choice.chunks)):
                mean.add(_Chunk(b, number, chunk, weight).write(mean))
            return Written(loss=mean.result(), returned=(0,))


class _Chunk:
    """One checkpointed chunk: [batch, length, hidden] to its summed loss."""

    def __init__(self, b: GraphBuilder, number: int, chunk: int, weight: Weight) -> None:
        self.b, self.number, self.chunk, self.weight = b, number, chunk, weight
        batch, length, _ = self.shape = b.of(chunk).shape
        self.rows, self.vocab = rows_of(self.shape), weight.shape[0]
        self.copied = batch > 1
        self.size = self.rows * self.vocab * DType.FP32.itemsize
        self.name = f"chunk.{number}"
        self.length = length

    def write(self, mean: Mean) -> int:
        """Forward, of which only the loss is left; backward runs it again."""
        b, name, dtype = self.b, self.name, self.b.of(self.chunk).dtype
        source = self.chunk
        if self.copied:
            source = b.value(f"{name}.copy", self.shape, dtype)
            kernel = copy_kernel(f"{name}.copy", b.bytes(source))
            b.op(f"{name}.copy", "copy", (self.chunk,), (source,), kernel)
        logits = b.value(f"{name}.logits", (self.rows, self.vocab), dtype)
        b.op(f"{name}.logits", "mm", (source,), (logits,), self._product("", dtype))
        wide = logits
        with b.frame() as frame:
            if dtype is not DType.FP32:
                wide = plain(b, f"{name}.float", (self.rows, self.vocab), DType.FP32, (logits,))
                frame.bind(wide)
            targets = mean.labels(self.number, self.length)
            if self.copied:
                frame.bind(*targets)
            logprobs = b.value(f"{name}.log_softmax", (self.rows, self.vocab), DType.FP32)
            kernel = softmax_kernel(f"{name}.log_softmax", self.size, self.size)
            b.op(f"{name}.log_softmax", "log_softmax", (wide,), (logprobs,), kernel)
            loss = b.value(f"{name}.loss", (1,), DType.FP32)
            outputs = (loss, b.value(f"{name}.total_weight", (1,), DType.FP32))
            kernel = self._nll()
            held = () if mean.targets is None else (mean.targets,)
            saves = (self.chunk, *held)
            inputs = (logprobs, *targets)
            rule = self._backward(dtype)
            b.op(f"{name}.nll_loss", "checkpoint", inputs, outputs, kernel, saves=saves, rule=rule)
        return loss

    def _nll(self) -> Elementwise:
        return softmax_kernel(f"{self.name}.nll_loss", self.rows * 4, 8)

    def _product(self, suffix: str, dtype: DType) -> Gemm:
        m, n, k = self.rows, self.vocab, self.shape[-1]
        m, n, k = {"": (m, n, k), ".wgrad": (n, k, m), ".dgrad": (m, k, n)}[suffix]
        return Gemm(name=f"{self.name}.logits{suffix}", m=m, n=n, k=k, dtype=dtype)

    def _backward(self, dtype: DType) -> Rule:
        """Recompute, then cross-entropy's backward and the product's.

        The chunk's copy is kept for the weight's gradient alone.
        """
        rule = Rule(self.name, "softmax")
        fp32, rows = DType.FP32, (self.rows, self.vocab)
        temporary = [rule.make("copy", self.shape, dtype)] if self.copied else []
        logits = rule.launch(
            self._product("", dtype), GradTensor(name=f"{self.name}.again", shape=rows, dtype=dtype)
        )
        if not self.weight.trainable:
            rule.free(*temporary)
            temporary = []
        wide = [rule.make("float", rows, fp32)] if dtype is not fp32 else []
        if wide:
            rule.free(logits)
        labels = []
        if self.copied:
            labels = [rule.make("labels", (self.shape[0], self.length), DType.INT64)]
        logprobs = rule.make("log_softmax", rows, fp32)
        scalars = [GradTensor(name=f"{self.name}.{n}", shape=(1,), dtype=fp32) for n in "lw"]
        loss = rule.launch(self._nll(), *scalars)
        rule.free(loss, *(wide or [logits]))
        gradient = rule.make("nll.grad", rows, fp32, read=0)
        rule.free(loss + 1, *labels)
        rule.drop_incoming()
        kernel = softmax_kernel(f"{self.name}.log_softmax.backward", 2 * self.size, self.size)
        second = rule.launch(
            kernel, GradTensor(name=f"{self.name}.log_softmax.grad", shape=rows, dtype=fp32)
        )
        rule.free(logprobs, gradient)
        if wide:
            narrow = rule.make("logits.grad", rows, dtype, read=self.size)
            rule.free(second)
            second = narrow
        self._products_backward(rule, dtype)
        rule.free(*temporary, second)
        return rule

    def _products_backward(self, rule: Rule, dtype: DType) -> None:
        rule.launch(
            self._product(".wgrad", dtype),
            GradTensor(
                name=f"{self.name}.weight.grad",
                shape=self.weight.shape,
                dtype=dtype,
                weight=self.weight.name,
            ),
        )
        rule.launch(
            self._product(".dgrad", dtype),
            GradTensor(
                name=f"{self.name}.grad_input", shape=self.shape, dtype=dtype, value=self.chunk
            ),
        )
