"""DeepSeek-V2 and V3 (modeling_deepseek_v2.py, modeling_deepseek_v3.py).

Latent attention; the first ``dense_layers`` have one gated MLP, the others routed experts and, for
every token, shared ones. The heads that predict further tokens are not part of transformers' class.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Buffer, Decoder, Shape
from simulator.model.families.hf.attention import rotary_buffers
from simulator.model.families.hf.experts import expert_weights, routed_experts
from simulator.model.families.hf.latent import latent_attention, latent_weights
from simulator.model.families.hf.llama import (
    Mlp,
    Row,
    gated,
    gated_mlp,
    gated_weights,
    register_rows,
    residual_block,
    start_rotary,
)
from simulator.model.families.hf.masks import lend_mask
from simulator.model.families.hf.routers import route_deepseek_v2, route_deepseek_v3
from simulator.model.families.hf.skeleton import Block, Family, Started
from simulator.model.ops.elementwise import add
from simulator.model.ops.embedding import embedding
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.plain import position_ids
from simulator.model.ops.rope import lend_frequencies

DENSE = "dense"


def hf_deepseek(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one DeepSeek-V2 or V3 for one micro-batch."""
    return Family(
        start=_start_complex if config.family == "deepseek_v2" else start_rotary,
        block=_block(_moe, _moe_weights(config)),
        other_blocks={DENSE: _block(gated_mlp, gated_weights(config))},
        kind_of=lambda config, layer: DENSE if layer < config.dense_layers else "",
        norm=lambda b, x: hf_rms_norm(b, x, "norm"),
        buffers=_buffers,
    )(config, shape)


def _block(mlp: Mlp, mlp_weights: tuple[Row, ...]) -> Block:
    def write(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
        register_rows(b, config, latent_weights(config), mlp_weights)
        return residual_block(
            b, config, x, lambda normed: latent_attention(b, config, shape, normed), mlp
        )

    return write


def _moe(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """Routed experts and, beside them, shared ones in one gated MLP."""
    route = route_deepseek_v2 if config.family == "deepseek_v2" else route_deepseek_v3
    logits, weights, choices = route(b, config, x)
    with b.frame(x, logits, weights, choices):
        rows = b.view(x, "experts.x", b.of(x).shape)  # the experts' gradients meet here first
        routed = routed_experts(b, config, rows, weights, choices)
        if not config.shared_ffn:
            return routed
        shared = gated(b, config, x, "mlp.shared_experts", config.shared_ffn)
        return add(b, routed, shared, "experts.all")


def _moe_weights(config: ModelConfig) -> tuple[Row, ...]:
    router = ("mlp.gate.weight", (config.experts, config.hidden), 0)
    shared = gated_weights(config, "mlp.shared_experts", config.shared_ffn)
    return (*expert_weights(config), router, *(shared if config.shared_ffn else ()))


def _start_complex(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    """As Llama's start, with one table of complex numbers for cos and sin."""
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "embed_tokens")
    positions = position_ids(b, shape.seq)
    masks = lend_mask(b, config, shape, sliding=False)
    table = lend_frequencies(b, positions, config.rope_head_dim)
    return Started(hidden=rows, held=(rows, positions, *masks, table))


def _buffers(config: ModelConfig) -> tuple[Buffer, ...]:
    """V3's router has a bias a layer, which no gradient moves; registered layer by layer."""
    biases = range(config.dense_layers, config.layers) if config.family == "deepseek_v3" else ()
    name = "mlp.gate.e_score_correction_bias"
    return (
        *(
            Buffer(name=f"layers.{layer}.{name}", shape=(config.experts,), dtype=DType.FP32)
            for layer in biases
        ),
        *rotary_buffers(config),
    )
