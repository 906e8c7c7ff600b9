"""Small models that are traced whole: a config.json, sequences, tokens each, and perhaps a mask."""

from __future__ import annotations

from typing import Any

Small = tuple[dict[str, Any], int, int] | tuple[dict[str, Any], int, int, str]

_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 97,
    "max_position_embeddings": 256,
}
_MIXTRAL = {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
_QWEN3 = {
    "num_key_value_heads": 2,
    "head_dim": 24,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
_QWEN2 = {
    "num_key_value_heads": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 80,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
_LATENT = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
}
_V2 = {**_LATENT, "q_lora_rank": None}
_V3 = {**_LATENT, "q_lora_rank": 40, "n_group": 4, "topk_group": 2}
_ONE_GROUP = {"n_group": 1, "topk_group": 1, "norm_topk_prob": False}
_LIMITED = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
_OSS = {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "_attn_implementation": "eager",
}
_EAGER = {"_attn_implementation": "eager"}
_ONE_BY_ONE = {"_experts_implementation": "eager"}


def _small(kind: str, *parts: dict[str, Any], batch: int = 3, seq: int = 41, **keys: Any) -> Small:
    merged: dict[str, Any] = {"model_type": kind}
    for part in (_SHAPE, *parts, keys):
        merged |= part
    return merged, batch, seq


SMALL: dict[str, Small] = {
    "phi3_mha_tok_eager3": _small(
        "phi3", num_key_value_heads=4, pad_token_id=0, _attn_implementation="eager", seq=1
    ),
    "mixtral": _small("mixtral", _MIXTRAL),
    "mixtral_eager_experts": _small("mixtral", _MIXTRAL, _ONE_BY_ONE),
    "mixtral_one_expert_a_token": _small("mixtral", _MIXTRAL, num_experts_per_tok=1, batch=1),
    "mixtral_windowed": _small("mixtral", _MIXTRAL, sliding_window=7),
    "mixtral_one_row_an_expert": _small("mixtral", _MIXTRAL, _ONE_BY_ONE, batch=1, seq=2),
    "qwen3_moe": _small("qwen3_moe", _QWEN3),
    "qwen3_moe_eager_experts": _small("qwen3_moe", _QWEN3, _ONE_BY_ONE),
    "qwen3_moe_eager": _small("qwen3_moe", _QWEN3, _attn_implementation="eager", batch=2),
    "qwen3_moe_raw_weights": _small("qwen3_moe", _QWEN3, norm_topk_prob=False, batch=1, seq=32),
    "deepseek_v3": _small("deepseek_v3", _V3),
    "deepseek_v3_eager": _small("deepseek_v3", _V3, _EAGER),
    "deepseek_v3_eager_b1": _small("deepseek_v3", _V3, _EAGER, batch=1, seq=40),
    "deepseek_v3_eager_experts": _small("deepseek_v3", _V3, _ONE_BY_ONE),
    "deepseek_v3_halves_flash": _small("deepseek_v3", _V3, rope_interleave=False, v_head_dim=24),
    "deepseek_v3_one_group": _small("deepseek_v3", _V3, _ONE_GROUP, batch=2, seq=32),
    "deepseek_v2": _small("deepseek_v2", _V2),
    "deepseek_v2_groups": _small("deepseek_v2", _V2, _LIMITED, q_lora_rank=40, batch=2),
    "deepseek_v2_eager": _small("deepseek_v2", _V2, _EAGER, batch=2),
    "deepseek_v2_b1": _small("deepseek_v2", _V2, batch=1, num_attention_heads=1),
    "gpt_oss": _small("gpt_oss", _OSS),
    "gpt_oss_b1": _small("gpt_oss", _OSS, batch=1),
    "gpt_oss_all_heads": _small("gpt_oss", _OSS, num_key_value_heads=4, attention_dropout=0.1),
    "gpt_oss_one_token": _small("gpt_oss", _OSS, batch=2, seq=1),
    "neox_gelu_fast": _small("gpt_neox", hidden_act="gelu_fast"),
    "llama_gelu_new": _small("llama", num_key_value_heads=2, hidden_act="gelu_new"),
    "llama_quick_gelu": _small("llama", num_key_value_heads=2, hidden_act="quick_gelu"),
    "phi3_relu": _small("phi3", num_key_value_heads=2, pad_token_id=0, hidden_act="relu"),
    "gemma2_gelu_fast": _small(
        "gemma2", _EAGER, num_key_value_heads=2, head_dim=16, hidden_activation="gelu_fast"
    ),
    "qwen2_moe": _small("qwen2_moe", _QWEN2),
    "qwen2_moe_eager_experts": _small("qwen2_moe", _QWEN2, _ONE_BY_ONE, batch=1),
}
RESHAPED: dict[str, tuple[str, int, int]] = {
    "gpt2_tok_eager3": ("gpt2_tok_eager1", 3, 1),
    "gpt2_one_tok_eager3": ("gpt2_one_eager1", 3, 1),
    "mpt_tok3": ("mpt2", 3, 1),
    "neox_two_tok_eager2": ("neox_eager2", 2, 1),
    "llama_mha_tok_eager2": ("llama_mha_eager2", 2, 1),
}
"""Traced models of other shapes: of which, sequences, tokens each."""

MASKED: dict[str, tuple[str, ...]] = {
    "padded": (
        *("llama_sdpa", "llama_eager1", "llama_mha_sdpa2", "llama_b1", "llama_one_sdpa3"),
        *("mistral", "mistral_window", "mistral_eager_window", "mistral_odd"),
        *("phi3_odd", "phi3_sdpa_window", "phi3_mqa_sdpa3", "qwen3_odd", "qwen2"),
        *("gemma2", "gemma2_odd", "gpt2", "gpt2_eager", "gpt2_odd", "gpt2_sdpa_0.1_gelu"),
        *("neox", "neox_sdpa_drop", "neox_one_sdpa1", "mpt", "mpt_b1", "mixtral", "qwen3_moe"),
        *("deepseek_v3", "deepseek_v3_eager", "deepseek_v2", "gpt_oss", "qwen2_moe"),
    ),
    "ones": ("llama_sdpa", "gpt2_eager", "mistral_window", "neox"),
}
"""By mask, the traced models whose batch comes with it too."""
