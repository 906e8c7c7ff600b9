"""Reads a Hugging Face ``config.json`` (as a mapping) into a :class:`ModelConfig`.

The names and defaults are those of transformers' ``configuration_*.py``, version 5, which also
reads the older keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.errors import UnsupportedError, UserError, did_you_mean
from simulator.model.config import ModelConfig


def from_hf_config(config: Mapping[str, Any], *, name: str = "") -> ModelConfig:
    """The architecture that a Hugging Face model config describes, in style ``hf``.

    >>> gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...         "n_positions": 1024, "vocab_size": 50257}
    >>> from_hf_config(gpt2).ffn
    3072

    Raises:
        UnsupportedError: a ``model_type``, or a setting of one, that this version cannot write.
        UserError: keys that it needs are missing.
    """
    kind = str(config.get("model_type", ""))
    reader = READERS.get(kind)
    if reader is None:
        raise UnsupportedError(f"model_type {kind!r} is not supported{did_you_mean(kind, READERS)}")
    keys = _Keys(config, kind)
    read = reader(keys)
    if keys.missing:
        raise UserError(f"config of model_type {kind!r} lacks {', '.join(keys.missing)}")
    label = name or str(config.get("_name_or_path") or config.get("name_or_path") or kind)
    usual = read.pop("attention", "sdpa")
    attention = str(config.get("_attn_implementation") or usual)
    return ModelConfig(
        name=label,
        family=kind,
        style="hf",
        attention="eager" if attention == "eager" else "sdpa",
        source="config.json",
        **read,
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """Looks keys up and notes which were missing."""

    config: Mapping[str, Any]
    kind: str
    missing: list[str]

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        object.__setattr__(self, "config", config)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "missing", [])

    def need(self, key: str) -> int:
        """An integer that must be there (1 where it is not: an error follows)."""
        if self.config.get(key) is None:
            self.missing.append(key)
            return 1
        return int(self.config[key])

    def get(self, key: str, default: Any) -> Any:
        """A key, or the class' default where it is absent or null."""
        found = self.config.get(key)
        return default if found is None else found

    def refuse(self, key: str, *allowed: Any, default: Any) -> None:
        """Accept only the settings that the writer of this family knows."""
        found = self.get(key, default)
        if found not in allowed:
            shown = " or ".join(map(repr, allowed))
            raise UnsupportedError(
                f"{self.kind} with {key}: {found!r} is not supported, {shown} is"
            )

    def partial_rotary(self, *old: str, default: float) -> float:
        """The turned part of a head: in ``rope_parameters``, or under an older key."""
        rope = self.get("rope_parameters", {})
        for found in (rope.get("partial_rotary_factor"), *(self.config.get(key) for key in old)):
            if found is not None:
                return float(found)
        return default


def _llama(keys: _Keys) -> dict[str, Any]:
    """Llama and what has its config's names."""
    hidden, heads = keys.need("hidden_size"), keys.need("num_attention_heads")
    keys.refuse("hidden_act", "silu", "swish", default="silu")
    if keys.kind == "llama":
        keys.refuse("attention_bias", False, default=False)
        keys.refuse("mlp_bias", False, default=False)
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


def _mistral(keys: _Keys) -> dict[str, Any]:
    return _llama(keys) | {"window": keys.config.get("sliding_window")}


def _qwen2(keys: _Keys) -> dict[str, Any]:
    keys.refuse("use_sliding_window", False, default=False)
    return _llama(keys) | {"qkv_bias": True}


def _qwen3(keys: _Keys) -> dict[str, Any]:
    keys.refuse("use_sliding_window", False, default=False)
    keys.refuse("attention_bias", False, default=False)
    return _llama(keys) | {"head_dim": int(keys.get("head_dim", 128))}


def _phi3(keys: _Keys) -> dict[str, Any]:
    dropout = float(keys.get("resid_pdrop", 0.0))
    return _llama(keys) | {
        "window": keys.config.get("sliding_window"),
        "rotary_fraction": keys.partial_rotary("partial_rotary_factor", default=1.0),
        "dropout": dropout,
    }


def _gemma2(keys: _Keys) -> dict[str, Any]:
    act = "gelu_pytorch_tanh"
    keys.refuse("hidden_activation", act, default=act)
    keys.refuse("attention_bias", False, default=False)
    usual = _llama(_Keys({**keys.config, "hidden_act": "silu"}, keys.kind))
    return usual | {
        "head_dim": int(keys.get("head_dim", 256)),
        "tied": bool(keys.get("tie_word_embeddings", True)),
        "window": int(keys.get("sliding_window", 4096)),
        "activation": "gelu",
        "attention": "eager",
    }


def _gpt2(keys: _Keys) -> dict[str, Any]:
    hidden, heads = keys.need("n_embd"), keys.need("n_head")
    keys.refuse("activation_function", "gelu_new", "gelu", default="gelu_new")
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
        "activation": str(keys.get("activation_function", "gelu_new")),
        "positions": keys.need("n_positions"),
        "dropout": float(keys.get("resid_pdrop", 0.1)),
        "embedding_dropout": float(keys.get("embd_pdrop", 0.1)),
        "attention_dropout": float(keys.get("attn_pdrop", 0.1)),
    }


def _gpt_neox(keys: _Keys) -> dict[str, Any]:
    hidden, heads = keys.need("hidden_size"), keys.need("num_attention_heads")
    keys.refuse("hidden_act", "gelu", default="gelu")
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
        "activation": "gelu",
        "rotary_fraction": keys.partial_rotary("rotary_pct", default=0.25),
        "dropout": dropout,
        "embedding_dropout": dropout,
        "attention_dropout": float(keys.get("attention_dropout", 0.0)),
    }


def _mpt(keys: _Keys) -> dict[str, Any]:
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


READERS: dict[str, Callable[[_Keys], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "mpt": _mpt,
}
"""model_type -> reader of its config; the keys are the families of style ``hf``."""
