"""MPT (modeling_mpt.py): ALiBi, no biases, LayerNorm, eager attention only.

llm-foundry's own MPT (flash attention with ALiBi) is another program: this is what
``MptForCausalLM`` runs, whose scores are fp32 because ALiBi is.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.masks import lend_mask
from simulator.model.families.hf.skeleton import Family, Started, register
from simulator.model.ops.elementwise import add
from simulator.model.ops.embedding import embedding
from simulator.model.ops.hf_attention import Eager
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import layer_norm
from simulator.model.ops.plain import alibi, plain
from simulator.model.ops.pointwise import dropout, gelu
from simulator.model.ops.views import copied_view, split


def hf_mpt(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one MPT for one micro-batch.

    Raises:
        UnsupportedError: attention other than eager.
    """
    if config.attention != "eager":
        raise UnsupportedError(
            f"MPT with attention {config.attention!r} is not supported: transformers has 'eager'"
        )
    return Family(
        start=_start,
        block=_block,
        norm=lambda b, x: layer_norm(b, x, "norm_f", bias=False),
        buffers=lambda _: (),
        base="transformer",
        embedding="wte",
        blocks="blocks",
        last_norm="norm_f",
    )(config, shape)


def _start(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "wte")
    slopes = alibi(b, config.heads, config.positions)
    (additive,) = lend_mask(b, config, shape, name="mask.additive", sliding=False)
    mask = plain(b, "mask", b.of(additive).shape, DType.BOOL, (additive,))
    return Started(hidden=rows, held=(rows, slopes, mask))


def _block(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    """Returns its probabilities too. FSDP's mixed precision passes it ALiBi in its own dtype."""
    _register_in_order(b, config)
    slopes = b.borrow("alibi", (config.heads, 1, config.positions), DType.FP32)
    if shape.casts and b.dtype is not DType.FP32:
        slopes = b.cast_argument(slopes)
    with b.frame() as frame:
        first = layer_norm(b, x, "norm_1", bias=False)
        with b.frame(first):
            mixed = _attention(b, config, shape, first, slopes)
            dropped = dropout(b, mixed, "attn.dropout", config.dropout)
            x1 = add(b, dropped, x, "attention.residual")
            b.module = "layers.*.mlp"
            second = layer_norm(b, x1, "norm_2", bias=False)
        frame.bind(mixed, x1, second)
        return _mlp(b, config, second, x1)


def _attention(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int, slopes: int) -> int:
    hidden, batch, seq = config.hidden, shape.batch, shape.seq
    heads = (batch, seq, config.heads, config.head_dim)
    mask = b.borrow("mask", (batch, 1, seq, seq), DType.BOOL)
    with b.frame(x) as frame:
        fused = linear(b, x, "attn.Wqkv", 3 * hidden)
        part = (batch, seq, hidden)
        q, k, v = split(b, fused, "chunk", {"q.part": part, "k.part": part, "v.part": part})
        q, k = copied_view(b, q, "q.heads", heads), b.view(k, "k.heads", heads)
        v = copied_view(b, v, "v.heads", heads)
        eager = Eager(dropout=config.attention_dropout, sliced="qkv")
        out = eager(b, q, k, v, mask, alibi=slopes, caller=frame)
        frame.bind(fused, out)
        return linear(b, out, "attn.out_proj", hidden)


def _mlp(b: GraphBuilder, config: ModelConfig, x: int, residual: int) -> int:
    with b.frame(x) as frame:
        wide = gelu(b, linear(b, x, "ffn.up_proj", config.ffn), "gelu")
        narrow = linear(b, wide, "ffn.down_proj", config.hidden)
        frame.bind(narrow)
        dropped = dropout(b, narrow, "ffn.dropout", config.dropout)
        return add(b, dropped, residual, "mlp.residual")


def _register_in_order(b: GraphBuilder, config: ModelConfig) -> None:
    hidden, ffn = config.hidden, config.ffn
    rows = (
        ("attention", "norm_1", (hidden,)),
        ("attention", "attn.Wqkv", (3 * hidden, hidden)),
        ("attention", "attn.out_proj", (hidden, hidden)),
        ("mlp", "norm_2", (hidden,)),
        ("mlp", "ffn.up_proj", (ffn, hidden)),
        ("mlp", "ffn.down_proj", (hidden, ffn)),
    )
    register(b, rows)
