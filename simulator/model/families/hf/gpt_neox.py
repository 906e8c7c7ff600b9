"""GPT-NeoX (modeling_gpt_neox.py): attention and MLP side by side, partial rotary embedding."""

from __future__ import annotations

from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import attend, rotary_buffers, rotary_dim
from simulator.model.families.hf.masks import lend_mask
from simulator.model.families.hf.skeleton import Family, Started, register
from simulator.model.ops.activations import activate
from simulator.model.ops.elementwise import add
from simulator.model.ops.embedding import embedding
from simulator.model.ops.hf_attention import Eager, Layout
from simulator.model.ops.hf_rope import borrow_tables, rotary_tables, rotate_part
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import layer_norm
from simulator.model.ops.plain import position_ids
from simulator.model.ops.pointwise import dropout
from simulator.model.ops.views import copied_view, split


def hf_gpt_neox(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one GPT-NeoX for one micro-batch."""
    return Family(
        start=_start,
        block=_block,
        norm=lambda b, x: layer_norm(b, x, "final_layer_norm"),
        buffers=rotary_buffers,
        base="gpt_neox",
        embedding="embed_in",
        last_norm="final_layer_norm",
        not_passed=frozenset({"embed_in.out"}),
    )(config, shape)


def _start(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "embed_in")
    ids = position_ids(b, shape.seq)
    masks = lend_mask(b, config, shape, sliding=False)
    dropped = dropout(b, rows, "embed.dropout", config.embedding_dropout)
    tables = rotary_tables(b, ids, rotary_dim(config))
    return Started(hidden=dropped, held=(rows, ids, *masks, *tables))


def _block(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    """mlp(norm(x)) + attention(norm(x)) + x."""
    _register_in_order(b, config)
    with b.frame() as frame:
        mixed = _attention(b, config, shape, layer_norm(b, x, "input_layernorm"))
        mixed = dropout(b, mixed, "attention.dropout", config.dropout)
        b.module = "layers.*.mlp"
        mapped = _mlp(b, config, layer_norm(b, x, "post_attention_layernorm"))
        mapped = dropout(b, mapped, "mlp.dropout", config.dropout)
        frame.bind(mixed, mapped)
        return add(b, add(b, mapped, mixed, "mlp.sum"), x, "mlp.residual")


def _attention(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    """q and k come out of ``torch.cat``, which lays them [b, heads, s, d]."""
    tables = borrow_tables(b, shape.seq, rotary_dim(config))
    lead, width = (shape.batch, shape.seq, config.heads), config.head_dim
    with b.frame(x) as frame:
        fused = linear(b, x, "attention.query_key_value", 3 * config.hidden, bias=True)
        qkv = copied_view(b, fused, "qkv", (*lead, 3 * width))
        one = (*lead, width)
        q, k, v = split(b, qkv, "chunk", {"q": one, "k": one, "v": one})
        q, k = rotate_part(b, (q, k), tables, at_once=False)
        eager = Eager(dropout=config.attention_dropout, layout=Layout(q=True, k=True))
        out = attend(b, config, shape, (q, k, v), eager=eager)
        frame.bind(fused, q, k, out)
        return linear(b, out, "attention.dense", config.hidden, bias=True)


def _mlp(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    with b.part("mlp"), b.frame(x):
        wide = linear(b, x, "mlp.dense_h_to_4h", config.ffn, bias=True)
        wide = activate(b, wide, config.activation)
        return linear(b, wide, "mlp.dense_4h_to_h", config.hidden, bias=True)


def _register_in_order(b: GraphBuilder, config: ModelConfig) -> None:
    hidden, ffn = config.hidden, config.ffn
    rows = (
        ("attention", "input_layernorm", (hidden,)),
        ("mlp", "post_attention_layernorm", (hidden,)),
        ("attention", "attention.query_key_value", (3 * hidden, hidden)),
        ("attention", "attention.dense", (hidden, hidden)),
        ("mlp", "mlp.dense_h_to_4h", (ffn, hidden)),
        ("mlp", "mlp.dense_4h_to_h", (hidden, ffn)),
    )
    register(b, rows, bias_of=slice(1))
