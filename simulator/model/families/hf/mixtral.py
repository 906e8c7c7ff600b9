"""Mixtral and Qwen3-MoE (modeling_mixtral.py, modeling_qwen3_moe.py): Llama with routed experts.

The load-balancing loss is off by default (``output_router_logits``) and is not written here.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import rotary_buffers
from simulator.model.families.hf.experts import routed_experts
from simulator.model.families.hf.llama import Row, llama_block, start_rotary
from simulator.model.families.hf.skeleton import Family
from simulator.model.ops.elementwise import cast
from simulator.model.ops.hf_attention import softmax
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import hf_rms_norm
from simulator.model.ops.routing import divide, top_k, total


def hf_mixtral(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Mixtral or Qwen3-MoE for one micro-batch."""
    return Family(
        start=start_rotary,
        block=lambda b, config, shape, x: llama_block(
            b, config, shape, x, mlp=sparse_moe, mlp_weights=_weights(config)
        ),
        norm=lambda b, x: hf_rms_norm(b, x, "norm"),
        buffers=rotary_buffers,
    )(config, shape)


def sparse_moe(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """A router and its experts; the block's locals hold what the router returns."""
    logits, weights, choices = _route(b, config, x)
    with b.frame(x, logits, weights, choices):
        return routed_experts(b, config, x, weights, choices)


def _route(b: GraphBuilder, config: ModelConfig, x: int) -> tuple[int, int, int]:
    """Logits, then the fp32 softmax' k greatest, made to sum to 1 where ``norm_topk`` says so.

    Mixtral's weights stay fp32, Qwen's are cast back.
    """
    with b.frame() as frame:
        logits = linear(b, x, "mlp.gate", config.experts)
        wide = cast(b, logits, DType.FP32, "router.float")
        chances = softmax(b, wide, "router.softmax")
        frame.bind(chances)
        weights, choices = top_k(b, chances, config.experts_per_token, "router.topk")
        if config.norm_topk:
            weights = divide(b, weights, total(b, weights, "router.sum"), "router.weights")
        if config.family != "mixtral":
            weights = cast(b, weights, b.of(logits).dtype, "router.cast")
    return logits, weights, choices


def _weights(config: ModelConfig) -> tuple[Row, ...]:
    """(name, shape, experts a token) in the order torch registers them."""
    experts, hidden, width = config.experts, config.hidden, config.expert_width
    router = ("mlp.gate.weight", (experts, hidden), 0)
    rows = (
        ("mlp.experts.gate_up_proj", (experts, 2 * width, hidden), config.experts_per_token),
        ("mlp.experts.down_proj", (experts, hidden, width), config.experts_per_token),
    )
    return (router, *rows) if config.family == "mixtral" else (*rows, router)
