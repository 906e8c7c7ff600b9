"""Llama, Mistral, Qwen2 and Qwen3 (modeling_llama.py and its kin): a bias, a norm apart.

Kept, in bytes over tokens · hidden, g = kv_heads / heads, f = ffn / hidden: 20 + 4 g + 8 f with
sdpa; Qwen3's norms of q and k add 6 (1 + g) each over the heads' width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

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
from simulator.model.ops.activations import activate
from simulator.model.ops.elementwise import add, mul
from simulator.model.ops.embedding import embedding
from simulator.model.ops.hf_attention import Eager
from simulator.model.ops.hf_rope import borrow_tables, rotary_tables, rotate
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.plain import position_ids
from simulator.model.ops.views import copied_view

NORMS = (("attention", "input_layernorm"), ("mlp", "post_attention_layernorm"))
"""(module, name) of a block's norms in registration order."""

IDLE_MASK = "mask.idle"

Mlp = Callable[[GraphBuilder, ModelConfig, int], int]

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
    """Embedding, position ids, mask, rotary tables: all held until the base model returns.

    Qwen2-MoE makes a mask of a window of 0 too, which no layer is passed.
    """
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "embed_tokens")
    positions = position_ids(b, shape.seq)
    masks = lend_mask(b, config, shape, sliding=config.window is not None)
    if config.family == "qwen2_moe":
        idle = replace(config, window=0)
        masks = (*masks, *lend_mask(b, idle, shape, name=IDLE_MASK, sliding=True))
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
    mlp: Mlp,
    mlp_weights: Iterable[Row],
) -> int:
    """A block with Llama's attention and any ``mlp``; weights in torch's order."""
    register_llama_order(b, config, NORMS, mlp_weights)
    eager = Eager(dropout=config.attention_dropout)
    return residual_block(
        b, config, x, lambda normed: attention_with(b, config, shape, normed, eager), mlp
    )


def residual_block(
    b: GraphBuilder,
    config: ModelConfig,
    x: int,
    attention: Callable[[int], int],
    mlp: Mlp,
    norm: Callable[[GraphBuilder, int, str], int] = hf_rms_norm,
) -> int:
    """Attention and ``mlp``, each after a norm and beside a residual."""
    mixed = attention(norm(b, x, "input_layernorm"))
    x1 = add(b, x, mixed, "attention.residual")
    with b.frame(x1):
        b.module = "layers.*.mlp"
        mapped = mlp(b, config, norm(b, x1, "post_attention_layernorm"))
        return add(b, x1, mapped, "mlp.residual")


def gated_mlp(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """The block's own gated MLP."""
    with b.part("mlp"):
        return gated(b, config, x, "mlp", config.ffn)


def gated(b: GraphBuilder, config: ModelConfig, x: int, name: str, width: int) -> int:
    """down(activation(gate(x)) · up(x))."""
    with b.frame(x):
        gate = linear(b, x, f"{name}.gate_proj", width)
        gate = activate(b, gate, config.activation)
        product = mul(b, gate, linear(b, x, f"{name}.up_proj", width), "gated")
        return linear(b, product, f"{name}.down_proj", config.hidden)


def attention_with(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int, eager: Eager) -> int:
    """Separate projections, rotary embedding, attention, output projection."""
    tables = borrow_tables(b, shape.seq, rotary_dim(config))
    with b.frame(x) as frame:
        q = heads_of(b, config, x, "q", config.heads, copied=True)
        k = heads_of(b, config, x, "k", config.kv_heads, copied=True)
        copied = copies_value_gradient(config, shape)
        v = heads_of(b, config, x, "v", config.kv_heads, copied=copied)
        with b.frame(q, k):
            q, k = rotate(b, q, tables, "q"), rotate(b, k, tables, "k")
        out = attend(b, config, shape, (q, k, v), eager=eager)
        frame.bind(q, k, v, out)
        return linear(b, out, "self_attn.o_proj", config.hidden)


def heads_of(
    b: GraphBuilder, config: ModelConfig, x: int, name: str, heads: int, *, copied: bool
) -> int:
    """One projection of x, seen as heads; ``copied``: its gradient comes back in another order."""
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


def gated_weights(config: ModelConfig, name: str = "mlp", width: int = 0) -> tuple[Row, ...]:
    """The weights of a gated MLP in torch's order; ``width``: 0 is the model's ``ffn``."""
    hidden, ffn = config.hidden, width or config.ffn
    return (
        (f"{name}.gate_proj.weight", (ffn, hidden), 0),
        (f"{name}.up_proj.weight", (ffn, hidden), 0),
        (f"{name}.down_proj.weight", (hidden, ffn), 0),
    )


def register_llama_order(
    b: GraphBuilder,
    config: ModelConfig,
    norms: Sequence[tuple[str, str]],
    mlp_weights: Iterable[Row],
) -> None:
    """Parameters in the order torch registers them: attention, MLP, norms."""
    register_rows(b, config, _attention_weights(config), mlp_weights, norms)


def register_rows(
    b: GraphBuilder,
    config: ModelConfig,
    attention: Iterable[Row],
    mlp: Iterable[Row],
    norms: Sequence[tuple[str, str]] = NORMS,
) -> None:
    """Register a block's weights in that order; ends in the attention."""
    for module, rows in (("attention", attention), ("mlp", mlp)):
        b.module = f"layers.*.{module}"
        for name, shape, routed in rows:
            b.weight(name, shape, routed=routed)
    for module, name in norms:
        b.module = f"layers.*.{module}"
        b.weight(f"{name}.weight", (config.hidden,))
    b.module = "layers.*.attention"


def _attention_weights(config: ModelConfig) -> Iterator[Row]:
    hidden, width = config.hidden, config.head_dim
    for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)):
        yield f"self_attn.{name}_proj.weight", (heads * width, hidden), 0
        if config.qkv_bias:
            yield f"self_attn.{name}_proj.bias", (heads * width,), 0
    yield "self_attn.o_proj.weight", (hidden, config.heads * width), 0
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (width,), 0
        yield "self_attn.k_norm.weight", (width,), 0
