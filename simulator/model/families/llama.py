"""Llama 2 and 3 (arXiv:2307.09288, arXiv:2407.21783) with torchtitan's modules.

What each module keeps for backward, in bytes over tokens·hidden with f = ffn / hidden:
16 (x, norm, q, k, v, o, x1, norm) + 8 f (w1, w3, silu, product) + log-sum-exp and two rstd.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import BLOCK, Buffer, Decoder, Shape
from simulator.model.graph import Graph
from simulator.model.losses import Head, head_weight, loss_of, write_loss
from simulator.model.ops.attention import efficient_attention, flash_attention, repeat_heads
from simulator.model.ops.elementwise import add, mul, silu
from simulator.model.ops.embedding import embedding
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm, rms_norm
from simulator.model.ops.rope import rotate, rotate_gathered


def llama(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Llama for one micro-batch."""
    return Decoder(
        embedding=_embedding(config, shape),
        blocks=(_block(config, shape),) * config.layers,
        head=_head(config, shape),
        loss_part=write_loss(shape, config.hidden, _projection(config), hf=False),
        buffers=(
            Buffer(
                name="freqs_cis",
                shape=(shape.seq, config.head_dim // 2),
                dtype=DType.COMPLEX64,
            ),
        ),
        embedding_fqn="tok_embeddings",
        block_fqn="layers.*",
        head_fqn="norm, output",
    )


def _embedding(config: ModelConfig, shape: Shape) -> Graph:
    b = GraphBuilder("embed", shape.dtype, shape.autocast, shape.tuning, shape.float8)
    out = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "tok_embeddings")
    return b.build(input=None, output=out)


def _block(config: ModelConfig, shape: Shape) -> Graph:
    b = GraphBuilder(BLOCK, shape.dtype, shape.autocast, shape.tuning, shape.float8)
    _register_in_order(b, config)
    b.module = "layers.*.attention"
    x = b.value("x", (shape.batch, shape.seq, config.hidden))
    mixed = _attention(b, _norm(b, x, "attention_norm", config), config)
    x1 = add(b, x, mixed, "attention.residual")
    with b.frame(x1):
        b.module = "layers.*.mlp"
        mapped = _feed_forward(b, _norm(b, x1, "ffn_norm", config), config)
        out = add(b, x1, mapped, "mlp.residual")
    return b.build(input=x, output=out)


def _norm(b: GraphBuilder, x: int, name: str, config: ModelConfig) -> int:
    if config.rms_norm == "narrow":
        return hf_rms_norm(b, x, name)
    return rms_norm(b, x, name, fused=config.rms_norm == "fused")


def _register_in_order(b: GraphBuilder, config: ModelConfig) -> None:
    """Parameters in the order torch registers them: attention, feed-forward, then both norms."""
    hidden, ffn = config.hidden, config.ffn
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    b.module = "layers.*.attention"
    for name, shape in (
        ("wq", (queries, hidden)),
        ("wk", (keys, hidden)),
        ("wv", (keys, hidden)),
        ("wo", (hidden, queries)),
    ):
        b.weight(f"{name}.weight", shape)
    b.module = "layers.*.mlp"
    for name, shape in (("w1", (ffn, hidden)), ("w2", (hidden, ffn)), ("w3", (ffn, hidden))):
        b.weight(f"{name}.weight", shape)
    b.module = "layers.*.attention"
    b.weight("attention_norm.weight", (hidden,))
    b.module = "layers.*.mlp"
    b.weight("ffn_norm.weight", (hidden,))


def _attention(b: GraphBuilder, x: int, config: ModelConfig) -> int:
    batch, seq, _ = b.of(x).shape
    width = config.head_dim
    with b.frame(x) as frame:
        q = linear(b, x, "wq", config.heads * width, view=(batch, seq, config.heads, width))
        k = linear(b, x, "wk", config.kv_heads * width, view=(batch, seq, config.kv_heads, width))
        v = linear(b, x, "wv", config.kv_heads * width, view=(batch, seq, config.kv_heads, width))
        turn = rotate_gathered if config.style == "torchtune" else rotate
        q, k = turn(b, q, k)
        if config.attention == "efficient" and not config.kv_expand:
            raise UnsupportedError(
                "the efficient kernel takes all heads alone: set kv_expand: true",
                key="training.attention",
            )
        with b.part("core_attn"):
            if config.kv_expand:
                k, v = repeat_heads(b, k, config.heads, "k"), repeat_heads(b, v, config.heads, "v")
            if config.attention == "efficient":
                out = efficient_attention(b, q, k, v, None, "attention")
            else:
                out = flash_attention(b, q, k, v, "attention")
        frame.bind(q, k, v, out)
        return linear(b, out, "wo", config.hidden)


def _feed_forward(b: GraphBuilder, x: int, config: ModelConfig) -> int:
    with b.part("mlp"), b.frame(x):
        gate = silu(b, linear(b, x, "w1", config.ffn), "silu")
        product = mul(b, gate, linear(b, x, "w3", config.ffn), "gated")
        return linear(b, product, "w2", config.hidden)


def _projection(config: ModelConfig) -> Head:
    tied = "tok_embeddings.weight" if config.tied else ""
    return Head(name="output", vocab=config.vocab, tied=tied)


def _head(config: ModelConfig, shape: Shape) -> Graph:
    b = GraphBuilder("head", shape.dtype, shape.autocast, shape.tuning, shape.float8)
    b.module = "norm"
    x = b.value("x", (shape.batch, shape.seq, config.hidden))
    normed = _norm(b, x, "norm", config)
    b.module, head = "head", _projection(config)
    if loss_of(shape).projects:
        head_weight(b, normed, head)
        return b.build(input=x, output=normed)
    logits = linear(b, normed, head.name, head.vocab, tied=head.tied)
    return b.build(input=x, output=logits, until_return=(normed,))
