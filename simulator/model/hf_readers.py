"""What each ``model_type`` of Hugging Face transformers calls its sizes, and its defaults.

One function a type, joined in ``READERS``; the names and defaults are those of transformers'
``configuration_*.py``, version 5, which also reads the older keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulator.errors import UnsupportedError
from simulator.model.hf_keys import Keys


def _llama(keys: Keys) -> dict[str, Any]:
    """Llama and what has its config's names."""
    if keys.kind == "llama":
        keys.refuse("attention_bias", False, default=False)
        keys.refuse("mlp_bias", False, default=False)
    return _sizes(keys) | {"activation": keys.activation("hidden_act", "silu")}


def _sizes(keys: Keys) -> dict[str, Any]:
    hidden, heads = keys.need("hidden_size"), keys.need("num_attention_heads")
    return {
        "layers": keys.need("num_hidden_layers"),
        "hidden": hidden,
        "ffn": keys.need("intermediate_size"),
        "heads": heads,
        "kv_heads": int(keys.get("num_key_value_heads", heads)),
        "vocab": keys.need("vocab_size"),
        "head_dim": int(keys.get("head_dim", max(hidden // heads, 1))),
        "tied": bool(keys.get("tie_word_embeddings", False)),
        "attention_dropout": float(keys.get("attention_dropout", 0.0)),
    }


def _mistral(keys: Keys) -> dict[str, Any]:
    return _llama(keys) | {"window": keys.config.get("sliding_window")}


def _qwen2(keys: Keys) -> dict[str, Any]:
    keys.refuse("use_sliding_window", False, default=False)
    return _llama(keys) | {"qkv_bias": True}


def _qwen3(keys: Keys) -> dict[str, Any]:
    keys.refuse("use_sliding_window", False, default=False)
    keys.refuse("attention_bias", False, default=False)
    return _llama(keys) | {"head_dim": int(keys.get("head_dim", 128)), "qk_norm": True}


def _mixtral(keys: Keys) -> dict[str, Any]:
    keys.refuse("router_jitter_noise", 0.0, default=0.0)
    return _mistral(keys) | _experts(keys, "num_local_experts", "num_experts_per_tok")


def _qwen3_moe(keys: Keys) -> dict[str, Any]:
    keys.refuse("decoder_sparse_step", 1, default=1)
    keys.refuse("mlp_only_layers", [], default=[])
    return (
        _qwen3(keys)
        | _experts(keys, "num_experts", "num_experts_per_tok")
        | {
            "expert_ffn": keys.need("moe_intermediate_size"),
            "norm_topk": bool(keys.get("norm_topk_prob", False)),
        }
    )


def _qwen2_moe(keys: Keys) -> dict[str, Any]:
    for key, usual in (("decoder_sparse_step", 1), ("mlp_only_layers", []), ("qkv_bias", True)):
        keys.refuse(key, usual, default=usual)
    return (
        _qwen2(keys)
        | _experts(keys, "num_experts", "num_experts_per_tok")
        | {
            "expert_ffn": keys.need("moe_intermediate_size"),
            "shared_ffn": keys.need("shared_expert_intermediate_size"),
            "norm_topk": bool(keys.get("norm_topk_prob", False)),
        }
    )


def _deepseek(keys: Keys) -> dict[str, Any]:
    """What DeepSeek-V2 and V3 share: latent attention, shared experts, dense layers first."""
    for key, usual in (("attention_bias", False), ("mlp_bias", False), ("moe_layer_freq", 1)):
        keys.refuse(key, usual, default=usual)
    turned = int(keys.get("qk_rope_head_dim", 64))
    width = keys.need("moe_intermediate_size")
    return (
        _sizes(keys)
        | _experts(keys, "n_routed_experts", "num_experts_per_tok")
        | {
            "kv_heads": keys.need("num_attention_heads"),
            "head_dim": int(keys.get("qk_nope_head_dim", 128)) + turned,
            "expert_ffn": width,
            "q_rank": int(keys.config.get("q_lora_rank", 1536) or 0),
            "kv_rank": int(keys.get("kv_lora_rank", 512)),
            "rope_head_dim": turned,
            "v_head_dim": int(keys.get("v_head_dim", 128)),
        }
    )


def _deepseek_v2(keys: Keys) -> dict[str, Any]:
    keys.refuse("topk_method", "greedy", "group_limited_greedy", default="greedy")
    limited = keys.get("topk_method", "greedy") == "group_limited_greedy"
    return _deepseek(keys) | {
        "shared_ffn": int(keys.get("n_shared_experts", 2)) * keys.need("moe_intermediate_size"),
        "dense_layers": int(keys.get("first_k_dense_replace", 0)),
        "expert_groups": keys.need("n_group") if limited else 0,
        "topk_groups": keys.need("topk_group") if limited else 0,
    }


def _deepseek_v3(keys: Keys) -> dict[str, Any]:
    return _deepseek(keys) | {
        "shared_ffn": int(keys.get("n_shared_experts", 1)) * keys.need("moe_intermediate_size"),
        "dense_layers": int(keys.get("first_k_dense_replace", 3)),
        "expert_groups": int(keys.get("n_group", 8)),
        "topk_groups": int(keys.get("topk_group", 4)),
        "norm_topk": bool(keys.get("norm_topk_prob", True)),
        "rope_pairs": bool(keys.get("rope_interleave", True)),
    }


def _gpt_oss(keys: Keys) -> dict[str, Any]:
    keys.refuse("attention_bias", True, default=True)
    layers = keys.need("num_hidden_layers")
    turns = [f"{'full' if layer % 2 else 'sliding'}_attention" for layer in range(layers)]
    keys.refuse("layer_types", turns, default=turns)
    return (
        _sizes(keys)
        | _experts(keys, "num_local_experts", "num_experts_per_tok")
        | {
            "head_dim": int(keys.get("head_dim", 64)),
            "window": int(keys.get("sliding_window", 128)),
            "qkv_bias": True,
            "attention": "eager",
        }
    )


def _experts(keys: Keys, count: str, chosen: str) -> dict[str, Any]:
    """How many there are, how many a token is sent to, and how they are run."""
    keys.refuse("hidden_act", "silu", "swish", default="silu")
    keys.refuse("output_router_logits", False, default=False)
    usual = "grouped_mm"
    keys.refuse("_experts_implementation", "grouped_mm", "eager", default=usual)
    return {
        "experts": keys.need(count),
        "experts_per_token": keys.need(chosen),
        "experts_implementation": keys.get("_experts_implementation", usual),
    }


def _phi3(keys: Keys) -> dict[str, Any]:
    dropout = float(keys.get("resid_pdrop", 0.0))
    return _llama(keys) | {
        "window": keys.config.get("sliding_window"),
        "rotary_fraction": keys.partial_rotary("partial_rotary_factor", default=1.0),
        "dropout": dropout,
    }


def _gemma2(keys: Keys) -> dict[str, Any]:
    keys.refuse("attention_bias", False, default=False)
    return _sizes(keys) | {
        "head_dim": int(keys.get("head_dim", 256)),
        "tied": bool(keys.get("tie_word_embeddings", True)),
        "window": int(keys.get("sliding_window", 4096)),
        "activation": keys.activation("hidden_activation", "gelu_pytorch_tanh"),
        "attention": "eager",
    }


def _gpt2(keys: Keys) -> dict[str, Any]:
    hidden, heads = keys.need("n_embd"), keys.need("n_head")
    keys.refuse("reorder_and_upcast_attn", False, default=False)
    keys.refuse("add_cross_attention", False, default=False)
    return {
        "layers": keys.need("n_layer"),
        "hidden": hidden,
        "ffn": int(keys.get("n_inner", 4 * hidden)),
        "heads": heads,
        "kv_heads": heads,
        "vocab": keys.need("vocab_size"),
        "head_dim": hidden // heads,
        "tied": bool(keys.get("tie_word_embeddings", True)),
        "activation": keys.activation("activation_function", "gelu_new"),
        "positions": keys.need("n_positions"),
        "dropout": float(keys.get("resid_pdrop", 0.1)),
        "embedding_dropout": float(keys.get("embd_pdrop", 0.1)),
        "attention_dropout": float(keys.get("attn_pdrop", 0.1)),
    }


def _gpt_neox(keys: Keys) -> dict[str, Any]:
    hidden, heads = keys.need("hidden_size"), keys.need("num_attention_heads")
    keys.refuse("use_parallel_residual", True, default=True)
    keys.refuse("attention_bias", True, default=True)
    dropout = float(keys.get("hidden_dropout", 0.0))
    return {
        "layers": keys.need("num_hidden_layers"),
        "hidden": hidden,
        "ffn": keys.need("intermediate_size"),
        "heads": heads,
        "kv_heads": heads,
        "vocab": keys.need("vocab_size"),
        "head_dim": hidden // heads,
        "tied": bool(keys.get("tie_word_embeddings", False)),
        "activation": keys.activation("hidden_act", "gelu"),
        "rotary_fraction": keys.partial_rotary("rotary_pct", default=0.25),
        "dropout": dropout,
        "embedding_dropout": dropout,
        "attention_dropout": float(keys.get("attention_dropout", 0.0)),
    }


def _mpt(keys: Keys) -> dict[str, Any]:
    hidden, heads = keys.need("d_model"), keys.need("n_heads")
    attention: Mapping[str, Any] = keys.get("attn_config", {})
    for key, allowed in (("clip_qkv", None), ("qk_ln", False)):
        if attention.get(key) not in (allowed, None):
            raise UnsupportedError(f"mpt with attn_config.{key} is not supported")
    keys.refuse("no_bias", True, default=True)
    keys.refuse("expansion_ratio", 4, default=4)
    dropout = float(attention.get("attn_pdrop") or 0.0)
    return {
        "layers": keys.need("n_layers"),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "heads": heads,
        "kv_heads": heads,
        "vocab": keys.need("vocab_size"),
        "head_dim": hidden // heads,
        "tied": True,
        "activation": "gelu",
        "attention": "eager",
        "positions": int(keys.get("max_seq_len", 2048)),
        "dropout": dropout,
        "attention_dropout": dropout,
    }


READERS: dict[str, Callable[[Keys], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gpt_oss": _gpt_oss,
    "gemma2": _gemma2,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "mpt": _mpt,
}
"""model_type -> reader of its config; the keys are the families of style ``hf``."""
