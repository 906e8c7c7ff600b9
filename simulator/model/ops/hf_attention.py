"""The attention functions that Hugging Face transformers dispatches to: sdpa and eager."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import Frame, GraphBuilder
from simulator.model.ops.attention import efficient_attention, flash_attention, repeat_heads
from simulator.model.ops.autocast import in_16_bits, in_fp32
from simulator.model.ops.elementwise import cast, subtract
from simulator.model.ops.linear import batched_product
from simulator.model.ops.plain import plain
from simulator.model.ops.pointwise import dropout, masked_fill, plus_table, scale, tanh
from simulator.model.ops.routing import top_k
from simulator.model.ops.views import concat, contiguous, copied_view, slice_of
from simulator.model.rule import Rule

BIAS_ALIGNMENT = 8
"""Elements. Source: ``preprocess_mask`` of ATen/native/transformers/attention.cpp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which of q, k, v lie [b, heads, s, d] in memory (else [b, s, heads, d]).

    torch.matmul copies what it cannot view as one batch of matrices; at batch 1 it can.
    """

    q: bool = False
    k: bool = False
    v: bool = False


def sdpa(b: GraphBuilder, q: int, k: int, v: int, *, heads_first: bool) -> int:
    """Without a mask: flash, grouped heads taken natively (integrations/sdpa_attention.py).

    The output lies as q does; ``heads_first``: transposing it back is a copy.
    """
    if b.of(q).shape[-1] != b.of(v).shape[-1]:  # the efficient kernel's output is [b, s, heads, d]
        return efficient_attention(b, q, k, v, None, "attention")
    q, k, v = _in_16_bits(b, q, k, v)
    out = flash_attention(b, q, k, v, "attention")
    if not heads_first or 1 in b.of(q).shape[1:3]:
        return out
    return contiguous(b, out, "attention.contiguous")


def efficient_sdpa(b: GraphBuilder, q: int, k: int, v: int) -> int:
    """Without a mask, inside ``sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)``."""
    return efficient_attention(b, *_in_16_bits(b, q, k, v), None, "attention")


def masked_sdpa(b: GraphBuilder, q: int, k: int, v: int, mask: int) -> int:
    """With a boolean mask [1 or b, 1, s, s]: k and v copied to all heads, the mask made additive.

    The efficient kernel writes its output [b, s, heads, d], whatever lies how.
    """
    batch, seq, heads, _ = b.of(q).shape
    k, v = repeat_heads(b, k, heads, "k"), repeat_heads(b, v, heads, "v")
    with b.frame(k, v):
        q, k, v = _in_16_bits(b, q, k, v)
        bias = _bias(b, mask, (batch, 1, seq, seq), b.of(q).dtype)
        return efficient_attention(b, q, k, v, bias, "attention")


def _in_16_bits(b: GraphBuilder, q: int, k: int, v: int) -> tuple[int, int, int]:
    """What autocast hands to the kernel."""
    v = in_16_bits(b, v, "v.cast")
    k = in_16_bits(b, k, "k.cast")
    return in_16_bits(b, q, "q.cast"), k, v


def _bias(b: GraphBuilder, mask: int, shape: tuple[int, ...], dtype: DType) -> int:
    """0 or minus infinity, in rows that begin where the kernel wants them.

    Source: ATen/native/transformers/attention.cpp, ``convert_boolean_attn_mask_`` and
    ``preprocess_mask``.
    """
    ends = [plain(b, f"attention.{end}", (1,), dtype) for end in ("lowest", "zero")]
    bias = plain(b, "attention.bias", shape, dtype, (mask, *ends))
    missing = -shape[-1] % BIAS_ALIGNMENT
    if not missing:
        return bias
    return plain(b, "attention.bias.padded", (*shape[:-1], shape[-1] + missing), dtype, (bias,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Eager:
    """``eager_attention_forward`` of the families that differ in a step.

    ``wide_softmax``: softmax(dtype=float32), then a cast back; ``softcap``: Gemma-2's;
    ``sinks``: gpt-oss' parameter of that name, one more score a row. MPT adds its fp32 ``alibi``
    and fills where the mask is true. ``sliced``: those of q, k, v that are slices of one product's
    features: of one token each, sequences are no one batch of matrices.
    """

    wide_softmax: bool = True
    softcap: bool = False
    sinks: str = ""
    dropout: float = 0.0
    layout: Layout = Layout()
    sliced: str = ""

    def __call__(
        self,
        b: GraphBuilder,
        q: int,
        k: int,
        v: int,
        mask: int,
        *,
        alibi: int | None = None,
        caller: Frame | None = None,
    ) -> int:
        """The output as a contiguous [b, s, heads, d].

        The weights are returned too, and are a local of the block until it returns.
        ``caller``: the frame whose local the last scores are, where attention is written inline;
        MPT's, whose block returns the weights as well.
        """
        batch, seq, heads, _ = b.of(q).shape
        head_dim = b.of(v).shape[-1]
        kv_heads = b.of(k).shape[2]
        layout = self._layout(b.of(q).shape, kv_heads)
        k, v = repeat_heads(b, k, heads, "k"), repeat_heads(b, v, heads, "v")
        with b.frame(k, v) as frame:
            right = in_16_bits(b, k, "k.cast")
            left = in_16_bits(b, q, "q.cast")
            with b.frame(left, right):
                left = left if layout.q else contiguous(b, left, "q.contiguous")
                dense = layout.k or (right != k and kv_heads == 1)  # a cast of one repeated head
                right = right if dense else contiguous(b, right, "k.contiguous")
                scores = batched_product(b, left, right, "scores", (batch, heads, seq, seq))
            scores = self._scores(b, scale(b, scores, "scores.scaled"), mask, alibi)
            if caller is not None:
                caller.bind(scores)
            dtype = b.of(q).dtype
            weights = (
                self._sunk(b, scores, frame) if self.sinks else self._weights(b, scores, dtype)
            )
            b.hold_until_end(weights)
            if caller is not None:
                b.return_too(weights)
            values = in_16_bits(b, v, "v.cast")
            weights = in_16_bits(b, weights, "weights.cast")
            shape = (batch, heads, seq, head_dim)
            with b.frame(values):
                values = values if layout.v else contiguous(b, values, "v.contiguous")
                out = batched_product(b, weights, values, "context", shape)
            return _tokens_first(b, out)

    def _layout(self, shape: tuple[int, ...], kv_heads: int) -> Layout:
        batch, seq, heads, _ = shape
        if batch == 1:
            return Layout(q=True, k=True, v=True)
        q, k, v = (heads == 1 or (seq == 1 and name not in self.sliced) for name in "qkv")
        if kv_heads == heads:
            return Layout(q=q or self.layout.q, k=k or self.layout.k, v=v or self.layout.v)
        copied = kv_heads > 1
        return Layout(q=q or self.layout.q, k=copied, v=copied)

    def _scores(self, b: GraphBuilder, scores: int, mask: int, alibi: int | None) -> int:
        if self.softcap:
            capped = tanh(b, scale(b, scores, "scores.divided"), "scores.tanh")
            scores = scale(b, capped, "scores.capped")
        if alibi is not None:
            return masked_fill(b, plus_table(b, scores, alibi, "scores.alibi"), mask, "scores.seen")
        return plus_table(b, scores, mask, "scores.masked")

    def _weights(self, b: GraphBuilder, scores: int, dtype: DType) -> int:
        """softmax, cast to the dtype of q: in one expression or, GPT-2's, in two."""
        with b.frame(scores):
            wide = cast(b, scores, DType.FP32, "scores.float") if self.wide_softmax else scores
            probabilities = softmax(b, wide, "softmax")
            if self.wide_softmax:
                probabilities = cast(b, probabilities, dtype, "weights")
        weights = cast(b, probabilities, dtype, "weights")
        return dropout(b, weights, "weights.dropout", self.dropout)

    def _sunk(self, b: GraphBuilder, scores: int, frame: Frame) -> int:
        """Softmax over the scores and their head's sink, less their maximum; without the sink."""
        shape = b.of(scores).shape
        more = (*shape[:-1], shape[-1] + 1)
        sinks = b.parameter(b.weight(self.sinks, (shape[1],)))
        with b.frame(scores):
            rule = Rule("sinks.expand")
            size = b.bytes(scores)
            rule.make("sum", (shape[1],), b.dtype, value=sinks, read=size // shape[-1])
            column = b.view(sinks, "sinks.column", (*shape[:-1], 1), rule)
            together = concat(b, (scores, column), "scores.sunk", more)
            highest, _ = top_k(b, together, 1, "scores.max")
            shifted = subtract(b, together, highest, "scores.shifted")
            frame.bind(shifted)
            weights = slice_of(b, softmax(b, shifted, "softmax"), "weights", shape)
            return dropout(b, weights, "weights.dropout", self.dropout)


def _tokens_first(b: GraphBuilder, out: int) -> int:
    """[b, heads, s, d] transposed to a contiguous [b, s, heads, d]."""
    batch, heads, seq, head_dim = shape = b.of(out).shape
    if batch > 1:
        out = copied_view(b, out, "context.heads", shape)
    if 1 in (heads, seq):
        return b.view(out, "attention.view", (batch, seq, heads, head_dim))
    return contiguous(b, out, "attention.contiguous", (batch, seq, heads, head_dim))


def softmax(b: GraphBuilder, x: int, name: str) -> int:
    """aten::_softmax over the last dim: keeps its result. Autocast: in fp32."""
    x = in_fp32(b, x, f"{name}.input")
    shape, dtype = b.of(x).shape, b.of(x).dtype
    out = b.value(name, shape, dtype)
    size = b.bytes(out)
    rule = Rule(name, "softmax")
    rule.make("backward", shape, dtype, value=x, read=2 * size)
    kernel = Elementwise(name=name, kind="softmax", read=size, written=size)
    b.op(name, "softmax", (x,), (out,), kernel, saves=(out,), rule=rule)
    return out
