"""Multi-head latent attention (arXiv:2405.04434) as modeling_deepseek_v2/v3.py write it.

Keys and values come from one latent of ``kv_rank`` a token, and share their ``rope_head_dim``
turned dims over all heads. Both are expanded before attention; where a query is wider than a value
CUDA takes the efficient kernel (``check_head_dim_size_flash``, sdp_utils.cpp).
"""

from __future__ import annotations

from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Shape
from simulator.model.families.hf.attention import attend
from simulator.model.families.hf.llama import Row
from simulator.model.ops.attention import repeat_heads
from simulator.model.ops.hf_attention import Eager, Layout
from simulator.model.ops.hf_rope import borrow_tables, rotate, rotate_pairs
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.rope import borrow_frequencies, rotate_lent
from simulator.model.ops.views import concat, copied_view, filled, split


def latent_attention(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    """Queries through their own latent (or straight), keys and values through another."""
    rest, turned = config.head_dim - config.rope_head_dim, config.rope_head_dim
    lead = b.of(x).shape[:2]
    with b.frame(x) as frame:
        seen = (*lead, config.heads, config.head_dim)
        q = copied_view(b, _queries(b, config, x), "q.heads", seen)
        parts = {"q.pass": (*seen[:3], rest), "q.rot": (*seen[:3], turned)}
        q_pass, q_rot = split(b, q, "q.split", parts)
        latent = linear(b, x, "self_attn.kv_a_proj_with_mqa", config.kv_rank + turned)
        parts = {"kv.latent": (*lead, config.kv_rank), "k.rot": (*lead, 1, turned)}
        kv, k_rot = split(b, latent, "kv.split", parts)
        kv = hf_rms_norm(b, kv, "self_attn.kv_a_layernorm")
        q_rot, k_rot = _turned(b, config, shape, q_rot, k_rot)
        query = concat(b, (q_pass, q_rot), "query", seen)
        key, value = _expanded(b, config, kv, k_rot)
        eager = Eager(dropout=config.attention_dropout, layout=Layout(q=True, k=True))
        out = attend(b, config, shape, (query, key, value), eager=eager)
        frame.bind(q, latent, kv, q_rot, k_rot, query, key, value, out)
        return linear(b, out, "self_attn.o_proj", config.hidden)


def _queries(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    width = config.heads * config.head_dim
    if not config.q_rank:
        return linear(b, x, "self_attn.q_proj", width)
    latent = linear(b, x, "self_attn.q_a_proj", config.q_rank)
    with b.frame(latent):
        normed = hf_rms_norm(b, latent, "self_attn.q_a_layernorm")
    with b.frame(normed):
        return linear(b, normed, "self_attn.q_b_proj", width)


def _turned(b: GraphBuilder, config: ModelConfig, shape: Shape, q: int, k: int) -> tuple[int, int]:
    """DeepSeek-V2 turns as Llama does, by complex numbers; V3 even and odd dims, or halves."""
    if config.family == "deepseek_v2":
        table = borrow_frequencies(b, shape.seq, config.rope_head_dim)
        return rotate_lent(b, q, k, table, copied=config.attention != "eager")
    tables = borrow_tables(b, shape.seq, config.rope_head_dim)
    if config.rope_pairs:
        return rotate_pairs(b, (q, k), tables)
    return rotate(b, q, tables, "q"), rotate(b, k, tables, "k")


def _expanded(b: GraphBuilder, config: ModelConfig, latent: int, k_rot: int) -> tuple[int, int]:
    """Keys, copied together from both parts into an empty tensor, and values, a view."""
    rest, width = config.head_dim - config.rope_head_dim, config.v_width
    lead = (*b.of(latent).shape[:2], config.heads)
    both = linear(b, latent, "self_attn.kv_b_proj", config.heads * (rest + width))
    with b.frame(both):
        seen = copied_view(b, both, "kv.heads", (*lead, rest + width))
        parts = {"k.pass": (*lead, rest), "value": (*lead, width)}
        k_pass, value = split(b, seen, "k_v.split", parts)
        shared = repeat_heads(b, k_rot, config.heads, "k.shared")
        return filled(b, (k_pass, shared), "key", (*lead, config.head_dim)), value


def latent_weights(config: ModelConfig) -> tuple[Row, ...]:
    """Name and shape of the attention's weights in the order torch registers them."""
    hidden, heads = config.hidden, config.heads
    rest, width = config.head_dim - config.rope_head_dim, heads * config.head_dim
    queries: dict[str, tuple[int, ...]] = {"q_proj": (width, hidden)}
    if config.q_rank:
        queries = {
            "q_a_proj": (config.q_rank, hidden),
            "q_a_layernorm": (config.q_rank,),
            "q_b_proj": (width, config.q_rank),
        }
    shapes: dict[str, tuple[int, ...]] = queries | {
        "kv_a_proj_with_mqa": (config.kv_rank + config.rope_head_dim, hidden),
        "kv_a_layernorm": (config.kv_rank,),
        "kv_b_proj": (heads * (rest + config.v_width), config.kv_rank),
        "o_proj": (hidden, heads * config.v_width),
    }
    return tuple((f"self_attn.{name}.weight", shape, 0) for name, shape in shapes.items())
