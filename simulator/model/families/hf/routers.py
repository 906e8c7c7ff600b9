"""Routers: from a token's hidden state to its experts and their weights, in fp32.

Each returns the logits, which the caller holds, the weights [b, s, k] and the experts' numbers.
Groups: only the experts of a token's best groups may be chosen (arXiv:2405.04434).
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.model.builder import Frame, GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.families.hf.experts import refuse_conversions
from simulator.model.ops.elementwise import cast
from simulator.model.ops.hf_attention import softmax
from simulator.model.ops.linear import linear
from simulator.model.ops.mm import cast_weight, mm
from simulator.model.ops.plain import plain
from simulator.model.ops.pointwise import masked_fill, scale, shift, sigmoid
from simulator.model.ops.routing import divide, gather, plain_pair, top_k, total

Routed = tuple[int, int, int]
FP32 = DType.FP32


def route_softmax(b: GraphBuilder, config: ModelConfig, x: int) -> Routed:
    """Mixtral, Qwen: the fp32 softmax' k greatest, made to sum to 1 where ``norm_topk`` says so.

    Mixtral's weights stay fp32, Qwen's are cast back.
    """
    refuse_conversions(b)
    with b.frame() as frame:
        logits = linear(b, x, "mlp.gate", config.experts)
        wide = cast(b, logits, FP32, "router.float")
        chances = softmax(b, wide, "router.softmax")
        frame.bind(chances)
        weights, choices = top_k(b, chances, config.experts_per_token, "router.topk")
        if config.norm_topk:
            weights = divide(b, weights, total(b, weights, "router.sum"), "router.weights")
        if config.family != "mixtral":
            weights = cast(b, weights, b.of(logits).dtype, "router.cast")
    return logits, weights, choices


def route_deepseek_v2(b: GraphBuilder, config: ModelConfig, x: int) -> Routed:
    """The softmax' k greatest, of the best groups where there are any, times a factor."""
    with b.frame() as frame:
        logits = _wide_logits(b, config, x)
        scores = softmax(b, logits, "router.softmax")
        frame.bind(scores)
        if config.expert_groups:
            best, indices = plain_pair(b, scores, _grouped(b, config, scores, 1), "groups.max")
            frame.bind(indices)
            mask = _other_groups(b, config, scores, best, frame)
            scores = masked_fill(b, scores, mask, "router.masked")
            frame.bind(scores)
        weights, choices = top_k(b, scores, config.experts_per_token, "router.topk")
        return logits, scale(b, weights, "router.scaled"), choices


def route_deepseek_v3(b: GraphBuilder, config: ModelConfig, x: int) -> Routed:
    """Sigmoids of the k experts that a biased score chooses, made to sum to 1, times a factor."""
    with b.frame() as frame:
        logits = _wide_logits(b, config, x)
        scores = sigmoid(b, logits, "router.sigmoid")
        frame.bind(scores)
        biased = plain(b, "router.biased", b.of(scores).shape, FP32, (scores,))
        two = _grouped(b, config, scores, 2)
        best, indices = plain_pair(b, biased, two, "groups.topk")
        summed = plain(b, "groups.sum", two[:-1], FP32, (best,))
        mask = _other_groups(b, config, scores, summed, frame)
        open_ = plain(b, "router.masked", b.of(scores).shape, FP32, (biased, mask))
        frame.bind(indices, open_)
        shape = (*b.of(x).shape[:2], config.experts_per_token)
        _, choices = plain_pair(b, open_, shape, "router.topk")
        weights = gather(b, scores, choices, "router.weights", shape)
        if config.norm_topk:
            divisor = shift(b, total(b, weights, "router.sum"), "router.sum.shifted")
            weights = divide(b, weights, divisor, "router.normed")
        return logits, scale(b, weights, "router.scaled"), choices


def _wide_logits(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """x and the weight cast to fp32: both casts are kept, and the product is one of fp32."""
    refuse_conversions(b)
    if b.dtype is FP32:
        return linear(b, x, "mlp.gate", config.experts)
    wide = cast(b, x, FP32, "router.input")
    stored = b.weight("mlp.gate.weight", (config.experts, config.hidden))
    weight = cast_weight(b, "mlp.gate.weight", stored, FP32)
    shape = (*b.of(x).shape[:2], config.experts)
    return mm(b, wide, weight, "mlp.gate", shape, saves=(wide, weight))


def _grouped(b: GraphBuilder, config: ModelConfig, scores: int, each: int) -> tuple[int, ...]:
    return (*b.of(scores).shape[:2], config.expert_groups, each)


def _other_groups(
    b: GraphBuilder, config: ModelConfig, scores: int, best: int, frame: Frame
) -> int:
    """Which experts are in none of the best groups, bool [b, s, E]; the locals of its making."""
    shape, groups = b.of(scores).shape, b.of(best).shape
    chosen = (*shape[:2], config.topk_groups)
    _, index = plain_pair(b, best, chosen, "groups.chosen")
    mask = plain(b, "groups.mask", groups, FP32, (index,))
    seen = mask
    if 1 < config.expert_groups < config.experts:  # else expand and reshape make a view
        seen = plain(b, "groups.expanded", shape, FP32, (mask,))
    held = plain(b, "groups.bool", shape, DType.BOOL, (seen,))
    other = plain(b, "groups.others", shape, DType.BOOL, (held,))
    frame.bind(best, index, mask, seen, other)
    return other
