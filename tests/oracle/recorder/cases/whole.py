"""Small models that are traced whole: a config.json, sequences, tokens each."""

from __future__ import annotations

from typing import Any

Small = tuple[dict[str, Any], int, int]

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
_ONE_BY_ONE = {"_experts_implementation": "eager"}


def _small(kind: str, *parts: dict[str, Any], batch: int = 3, seq: int = 41, **keys: Any) -> Small:
    merged: dict[str, Any] = {"model_type": kind}
    for part in (_SHAPE, *parts, keys):
        merged |= part
    return merged, batch, seq


SMALL: dict[str, Small] = {
    "mixtral": _small("mixtral", _MIXTRAL),
    "mixtral_eager_experts": _small("mixtral", _MIXTRAL, _ONE_BY_ONE),
    "mixtral_one_expert_a_token": _small("mixtral", _MIXTRAL, num_experts_per_tok=1, batch=1),
    "mixtral_windowed": _small("mixtral", _MIXTRAL, sliding_window=7),
    "mixtral_one_row_an_expert": _small("mixtral", _MIXTRAL, _ONE_BY_ONE, batch=1, seq=2),
    "qwen3_moe": _small("qwen3_moe", _QWEN3),
    "qwen3_moe_eager_experts": _small("qwen3_moe", _QWEN3, _ONE_BY_ONE),
    "qwen3_moe_eager": _small("qwen3_moe", _QWEN3, _attn_implementation="eager", batch=2),
    "qwen3_moe_raw_weights": _small("qwen3_moe", _QWEN3, norm_topk_prob=False, batch=1, seq=32),
}
