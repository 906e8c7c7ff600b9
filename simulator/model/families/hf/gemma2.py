"""Gemma-2 (modeling_gemma2.py): norms before and after, soft-capped scores and logits.

sdpa knows no soft cap, so transformers runs it eagerly. Every other layer slides, the first one
included; both masks are built, of one size, and a block is passed one.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Buffer, Decoder, Shape
from simulator.model.families.hf.attention import rotary_buffers, rotary_dim
from simulator.model.families.hf.llama import (
    attention_with,
    gated_mlp,
    gated_weights,
    register_llama_order,
)
from simulator.model.families.hf.masks import lend_mask
from simulator.model.families.hf.skeleton import Family, Started
from simulator.model.ops.elementwise import add
from simulator.model.ops.embedding import embedding
from simulator.model.ops.hf_attention import Eager
from simulator.model.ops.hf_rope import rotary_tables
from simulator.model.ops.norm import gemma_rms_norm
from simulator.model.ops.plain import plain, position_ids
from simulator.model.ops.pointwise import scale, times_table

NORMS = (
    ("attention", "input_layernorm"),
    ("attention", "post_attention_layernorm"),
    ("mlp", "pre_feedforward_layernorm"),
    ("mlp", "post_feedforward_layernorm"),
)
"""(module, name) of a block's norms in registration order."""


def hf_gemma2(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Gemma-2 for one micro-batch.

    Raises:
        UnsupportedError: attention other than eager.
    """
    if config.attention != "eager":
        raise UnsupportedError(
            f"Gemma-2 with attention {config.attention!r} is not supported: soft-capped scores "
            "need 'eager'"
        )
    return Family(
        start=_start,
        block=_block,
        norm=lambda b, x: gemma_rms_norm(b, x, "norm"),
        buffers=_buffers,
        softcap=True,
        other_blocks={"full": _block},
        kind_of=lambda config, layer: "full" if layer % 2 else "",
        withheld={"": frozenset({"mask"}), "full": frozenset({"mask.sliding"})},
    )(config, shape)


def _buffers(config: ModelConfig) -> tuple[Buffer, ...]:
    scale_of = Buffer(name="embed_tokens.embed_scale", shape=(1,), dtype=DType.BF16)
    return (scale_of, *rotary_buffers(config))


def _start(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "embed_tokens")
    hidden = _scaled(b, rows, shape)
    ids = position_ids(b, shape.seq)
    masks = (
        *lend_mask(b, config, shape, sliding=False),
        *lend_mask(b, config, shape, name="mask.sliding", sliding=True),
    )
    tables = rotary_tables(b, ids, rotary_dim(config))
    return Started(hidden=hidden, held=(hidden, ids, *masks, *tables))


def _scaled(b: GraphBuilder, rows: int, shape: Shape) -> int:
    """Times a buffer of one number, stored as the parameters are and cast to the weight's dtype."""
    if not shape.mixed:
        return scale(b, rows, "embed.scaled")
    factor = plain(b, "embed.scale", (1,), shape.dtype)
    return times_table(b, rows, factor, "embed.scaled")


def _block(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    register_llama_order(b, config, NORMS, gated_weights(config))
    eager = Eager(softcap=True, dropout=config.attention_dropout)
    normed = gemma_rms_norm(b, x, "input_layernorm")
    mixed = attention_with(b, config, shape, normed, eager)
    with b.frame(mixed):
        after = gemma_rms_norm(b, mixed, "post_attention_layernorm")
    x1 = add(b, x, after, "attention.residual")
    with b.frame(x1):
        b.module = "layers.*.mlp"
        mapped = gated_mlp(b, config, gemma_rms_norm(b, x1, "pre_feedforward_layernorm"))
        with b.frame(mapped):
            after = gemma_rms_norm(b, mapped, "post_feedforward_layernorm")
        return add(b, x1, after, "mlp.residual")
