"""Llama, Mistral, Qwen2 and Qwen3 (modeling_llama.py and its kin): a bias, a norm apart.

Kept, in bytes over tokens · hidden, g = kv_heads / heads, f = ffn / hidden: 20 + 4 g + 8 f with
sdpa; Qwen3's norms of q and k add 6 (1 + g) each over the heads' width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import (
    attend,
    copies_value_gradient,
    rotary_buffers,
    rotary_dim,
)
from simulator.model.families.hf.masks import lend_mask
from simulator.model.families.hf.skeleton import Family, Started
from simulator.model.ops.elementwise import add, mul, silu
from simulator.model.ops.embedding import embedding
from simulator.model.ops.hf_attention import Eager
from simulator.model.ops.hf_rope import borrow_tables, rotary_tables, rotate
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.plain import position_ids
from simulator.model.ops.pointwise import gelu
from simulator.model.ops.views import copied_view

NORMS = (("attention", "input_layernorm"), ("mlp", "post_attention_layernorm"))
"""(module, name) of a block's norms in registration order."""

Row = tuple[str, tuple[int, ...], int]
"""Name and shape of a weight, and how many of its experts a token meets (0: it has none)."""


def hf_llama(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Llama, Mistral, Qwen2 or Qwen3 for one micro-batch."""
    return Family(
        start=start_rotary,
        block=_block,
        norm=lambda b, x: hf_rms_norm(b, x, "norm"),
        buffers=rotary_buffers,
    )(config, shape)


def start_rotary(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    """Embedding, position ids, mask, rotary tables: all held until the base model returns."""
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "embed_tokens")
    positions = position_ids(b, shape.seq)
    masks = lend_mask(b, config, shape, sliding=config.window is not None)
    tables = rotary_tables(b, positions, rotary_dim(config))
    return Started(hidden=rows, held=(rows, positions, *masks, *tables))


def _block(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    return llama_block(b, config, shape, x, mlp=gated_mlp, mlp_weights=gated_weights(config))


def llama_block(
    b: GraphBuilder,
    config: ModelConfig,
    shape: Shape,
    x: int,
    *,
    mlp: Callable[[GraphBuilder, ModelConfig, int], int],
    mlp_weights: Iterable[Row],
) -> int:
    """Attention and ``mlp``, each after a norm and beside a residual; weights in torch's order."""
    register_llama_order(b, config, NORMS, mlp_weights)
    eager = Eager(dropout=config.attention_dropout)
    mixed = attention_with(b, config, shape, hf_rms_norm(b, x, "input_layernorm"), eager)
    x1 = add(b, x, mixed, "attention.residual")
    with b.frame(x1):
        b.module = "layers.*.mlp"
        mapped = mlp(b, config, hf_rms_norm(b, x1, "post_attention_layernorm"))
        return add(b, x1, mapped, "mlp.residual")


ACTIVATIONS = {"silu": silu, "gelu": gelu}


def gated_mlp(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """down(activation(gate(x)) · up(x))."""
    with b.part("mlp"), b.frame(x):
        gate = linear(b, x, "mlp.gate_proj", config.ffn)
        gate = ACTIVATIONS[config.activation](b, gate, config.activation)
        product = mul(b, gate, linear(b, x, "mlp.up_proj", config.ffn), "gated")
        return linear(b, product, "mlp.down_proj", config.hidden)


def attention_with(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int, eager: Eager) -> int:
    """Separate projections, rotary embedding, attention, output projection."""
    tables = borrow_tables(b, shape.seq, rotary_dim(config))
    with b.frame(x) as frame:
        q = _heads(b, config, x, "q", config.heads, copied=True)
        k = _heads(b, config, x, "k", config.kv_heads, copied=True)
        copied = copies_value_gradient(config, shape)
        v = _heads(b, config, x, "v", config.kv_heads, copied=copied)
        with b.frame(q, k):
            q, k = rotate(b, q, tables, "q"), rotate(b, k, tables, "k")
        out = attend(b, config, shape, (q, k, v), eager=eager)
        frame.bind(q, k, v, out)
        return linear(b, out, "self_attn.o_proj", config.hidden)


def _heads(
    b: GraphBuilder, config: ModelConfig, x: int, name: str, heads: int, *, copied: bool
) -> int:
    batch, seq, _ = b.of(x).shape
    shape = (batch, seq, heads, config.head_dim)
    width = heads * config.head_dim
    bias = config.qkv_bias
    projected = linear(b, x, f"self_attn.{name}_proj", width, view=shape, bias=bias)
    seen = copied_view(b, projected, f"{name}.heads", shape) if copied else projected
    if config.qk_norm and name != "v":
        with b.frame(seen):
            return hf_rms_norm(b, seen, f"self_attn.{name}_norm")
    return seen


def gated_weights(config: ModelConfig) -> tuple[Row, ...]:
    """The weights of a gated MLP in torch's order."""
    hidden, ffn = config.hidden, config.ffn
    return (
        ("mlp.gate_proj.weight", (ffn, hidden), 0),
        ("mlp.up_proj.weight", (ffn, hidden), 0),
        ("mlp.down_proj.weight", (hidden, ffn), 0),
    )


def register_llama_order(
    b: GraphBuilder,
    config: ModelConfig,
    norms: Sequence[tuple[str, str]],
    mlp_weights: Iterable[Row],
) -> None:
    """Parameters in the order torch registers them: attention, MLP, norms."""
    hidden, width = config.hidden, config.head_dim
    for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)):
        b.weight(f"self_attn.{name}_proj.weight", (heads * width, hidden))
        if config.qkv_bias:
            b.weight(f"self_attn.{name}_proj.bias", (heads * width,))
    b.weight("self_attn.o_proj.weight", (hidden, config.heads * width))
    if config.qk_norm:
        b.weight("self_attn.q_norm.weight", (width,))
        b.weight("self_attn.k_norm.weight", (width,))
    b.module = "layers.*.mlp"
    for name, weight_shape, routed in mlp_weights:
        b.weight(name, weight_shape, routed=routed)
    for module, name in norms:
        b.module = f"layers.*.{module}"
        b.weight(f"{name}.weight", (hidden,))
    b.module = "layers.*.attention"
