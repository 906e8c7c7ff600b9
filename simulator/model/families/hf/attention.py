"""The attention call that most families share: sdpa, masked sdpa or eager, by config."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Buffer, Shape
from simulator.model.families.hf.masks import borrow_additive, borrow_boolean, is_masked
from simulator.model.ops.hf_attention import Eager, efficient_sdpa, masked_sdpa, sdpa


def attend(
    b: GraphBuilder,
    config: ModelConfig,
    shape: Shape,
    heads: tuple[int, int, int],
    *,
    eager: Eager,
) -> int:
    """q, k, v to a contiguous [b, s, heads, d]. What lies how in memory is ``eager.layout``.

    The attention function is passed the position ids too, if the block is (its ``kwargs``).
    """
    q, k, v = heads
    with b.part("core_attn", unread=b.lent("position_ids")):
        if config.attention == "eager":
            return eager(b, q, k, v, borrow_additive(b, shape))
        if is_masked(config, shape):
            return masked_sdpa(b, q, k, v, borrow_boolean(b, shape))
        if config.attention == "efficient":
            return efficient_sdpa(b, q, k, v)
        return sdpa(b, q, k, v, heads_first=eager.layout.q)


def copies_value_gradient(config: ModelConfig, shape: Shape) -> bool:
    """Whether v's gradient comes back [b, heads, s, d], as it does from all but the kernels."""
    grouped = config.heads > config.kv_heads
    return config.attention == "eager" or (grouped and is_masked(config, shape))


def rotary_dim(config: ModelConfig) -> int:
    """Dims of a head that rotary embedding turns."""
    if config.rope_head_dim:
        return config.rope_head_dim
    return int(config.head_dim * config.rotary_fraction)


def rotary_buffers(config: ModelConfig) -> tuple[Buffer, ...]:
    """The module's inverse frequencies, twice."""
    shape = (rotary_dim(config) // 2,)
    return tuple(
        Buffer(name=f"rotary_emb.{name}", shape=shape, dtype=DType.FP32)
        for name in ("inv_freq", "original_inv_freq")
    )
