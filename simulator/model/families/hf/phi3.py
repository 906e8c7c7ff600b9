"""Phi-3 and Phi-4 (modeling_phi3.py): one projection for q, k, v and one for gate and up."""

from __future__ import annotations

from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import (
    attend,
    copies_value_gradient,
    rotary_buffers,
    rotary_dim,
)
from simulator.model.families.hf.llama import start_rotary
from simulator.model.families.hf.skeleton import Family, register
from simulator.model.ops.activations import activate
from simulator.model.ops.elementwise import add, mul
from simulator.model.ops.hf_attention import Eager, Layout
from simulator.model.ops.hf_rope import borrow_tables, rotate_part
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.pointwise import dropout
from simulator.model.ops.views import copied_view, slice_of, split


def hf_phi3(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Phi-3 or Phi-4 for one micro-batch."""
    return Family(
        start=start_rotary,
        block=_block,
        norm=lambda b, x: hf_rms_norm(b, x, "norm"),
        buffers=rotary_buffers,
    )(config, shape)


def _block(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    _register_in_order(b, config)
    mixed = _attention(b, config, shape, hf_rms_norm(b, x, "input_layernorm"))
    with b.frame(mixed):
        x1 = add(b, x, dropout(b, mixed, "attention.dropout", config.dropout), "attention.residual")
    with b.frame(x1):
        b.module = "layers.*.mlp"
        mapped = _mlp(b, config, hf_rms_norm(b, x1, "post_attention_layernorm"))
        with b.frame(mapped):
            dropped = dropout(b, mapped, "mlp.dropout", config.dropout)
            return add(b, x1, dropped, "mlp.residual")


def _attention(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    """q and k come out of ``torch.cat``, which lays them [b, heads, s, d]."""
    tables = borrow_tables(b, shape.seq, rotary_dim(config))
    counts = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
    width, batch, seq = config.head_dim, shape.batch, shape.seq
    with b.frame(x) as frame:
        qkv = linear(b, x, "self_attn.qkv_proj", sum(counts.values()) * width)
        parts = [
            slice_of(b, qkv, f"{name}.part", (batch, seq, heads * width))
            for name, heads in counts.items()
        ]
        copied = (True, True, copies_value_gradient(config, shape))
        q, k, v = (
            (copied_view if copy else GraphBuilder.view)(
                b, part, f"{n}.heads", (batch, seq, h, width)
            )
            for (n, h), part, copy in zip(counts.items(), parts, copied, strict=True)
        )
        q, k = rotate_part(b, (q, k), tables, at_once=True)
        eager = Eager(dropout=config.attention_dropout, layout=Layout(q=True, k=True), sliced="v")
        out = attend(b, config, shape, (q, k, v), eager=eager)
        frame.bind(qkv, q, k, out)
        return linear(b, out, "self_attn.o_proj", config.hidden)


def _mlp(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """down(up · activation(gate)) of the halves of one product."""
    with b.part("mlp"), b.frame(x) as frame:
        both = linear(b, x, "mlp.gate_up_proj", 2 * config.ffn)
        half = (*b.of(x).shape[:2], config.ffn)
        gate, up = split(b, both, "gate_up", {"gate": half, "up": half})
        product = mul(b, up, activate(b, gate, config.activation), "gated")
        frame.bind(both)
        return linear(b, product, "mlp.down_proj", config.hidden)


def _register_in_order(b: GraphBuilder, config: ModelConfig) -> None:
    hidden, ffn, width = config.hidden, config.ffn, config.head_dim
    queries, all_heads = config.heads, config.heads + 2 * config.kv_heads
    rows = (
        ("attention", "self_attn.o_proj", (hidden, queries * width)),
        ("attention", "self_attn.qkv_proj", (all_heads * width, hidden)),
        ("mlp", "mlp.gate_up_proj", (2 * ffn, hidden)),
        ("mlp", "mlp.down_proj", (hidden, ffn)),
        ("attention", "input_layernorm", (hidden,)),
        ("mlp", "post_attention_layernorm", (hidden,)),
    )
    register(b, rows)
