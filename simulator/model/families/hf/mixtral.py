"""Mixtral, Qwen2-MoE and Qwen3-MoE (their modeling_*.py): Llama with routed experts.

Qwen2-MoE has a shared expert beside them, which a gate opens. The load-balancing loss is off by
default (``output_router_logits``) and is not written here.
"""

from __future__ import annotations

from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import rotary_buffers
from simulator.model.families.hf.experts import expert_weights, routed_experts
from simulator.model.families.hf.llama import (
    IDLE_MASK,
    Row,
    gated,
    gated_weights,
    llama_block,
    start_rotary,
)
from simulator.model.families.hf.routers import route_softmax
from simulator.model.families.hf.skeleton import Family
from simulator.model.ops.elementwise import add
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.pointwise import sigmoid
from simulator.model.ops.routing import gate_rows


def hf_mixtral(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Mixtral, Qwen2-MoE or Qwen3-MoE for one micro-batch."""
    mlp = gated_moe if config.shared_ffn else sparse_moe
    return Family(
        start=start_rotary,
        block=lambda b, config, shape, x: llama_block(
            b, config, shape, x, mlp=mlp, mlp_weights=_weights(config)
        ),
        norm=lambda b, x: hf_rms_norm(b, x, "norm"),
        buffers=rotary_buffers,
        not_passed=frozenset({IDLE_MASK, f"{IDLE_MASK}.seen"}),
    )(config, shape)


def sparse_moe(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """A router and its experts; the block's locals hold what the router returns."""
    logits, weights, choices = route_softmax(b, config, x)
    with b.frame(x, logits, weights, choices):
        return routed_experts(b, config, x, weights, choices)


def gated_moe(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """A shared expert, run first and weighed by the sigmoid of its gate, plus routed ones."""
    shared = gated(b, config, x, "mlp.shared_expert", config.shared_ffn)
    logits, weights, choices = route_softmax(b, config, x)
    with b.frame(x, shared, logits, weights, choices):
        routed = routed_experts(b, config, x, weights, choices)
        gate = sigmoid(b, linear(b, x, "mlp.shared_expert_gate", 1), "shared.sigmoid")
        return add(b, routed, gate_rows(b, gate, shared, "shared.gated"), "experts.all")


def _weights(config: ModelConfig) -> tuple[Row, ...]:
    """(name, shape, experts a token) in the order torch registers them."""
    router = ("mlp.gate.weight", (config.experts, config.hidden), 0)
    experts = expert_weights(config)
    if config.family == "qwen3_moe":
        return (*experts, router)
    if not config.shared_ffn:
        return (router, *experts)
    shared = gated_weights(config, "mlp.shared_expert", config.shared_ffn)
    gate = ("mlp.shared_expert_gate.weight", (1, config.hidden), 0)
    return (router, *experts, *shared, gate)
