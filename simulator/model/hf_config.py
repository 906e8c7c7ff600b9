"""Reads a Hugging Face ``config.json`` (as a mapping) into a :class:`ModelConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import UnsupportedError, did_you_mean
from simulator.model.config import ModelConfig
from simulator.model.hf_keys import Keys
from simulator.model.hf_readers import READERS


def from_hf_config(config: Mapping[str, Any], *, name: str = "") -> ModelConfig:
    """The architecture that a Hugging Face model config describes, in style ``hf``.

    >>> gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...         "n_positions": 1024, "vocab_size": 50257}
    >>> from_hf_config(gpt2).ffn
    3072

    Raises:
        UnsupportedError: a ``model_type``, or a setting of one, that this version cannot write.
        UserError: keys that it needs are missing, or no positive integers.
    """
    kind = str(config.get("model_type", ""))
    reader = READERS.get(kind)
    if reader is None:
        raise UnsupportedError(
            f"model_type {kind!r} is not supported{did_you_mean(kind, READERS, cutoff=0.85)}"
        )
    keys = Keys(config, kind)
    read = reader(keys)
    _check_whose(keys)
    label = name or str(config.get("_name_or_path") or config.get("name_or_path") or kind)
    usual = read.pop("attention", "sdpa")
    keys.refuse("_attn_implementation", "sdpa", "eager", default=usual)
    keys.raise_any()
    return ModelConfig(
        name=label,
        family=kind,
        style="hf",
        attention=keys.get("_attn_implementation", usual),
        source="config.json",
        **read,
    )


_ROPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
"""Source: ``ROPE_INIT_FUNCTIONS`` of modeling_rope_utils.py; ``default`` beside it."""

_LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel")


def _check_whose(keys: Keys) -> None:
    """What any config may say of its model: its class, how weights are stored, its rope."""
    for name in keys.get("architectures", []):
        suffix = next((each for each in _LANGUAGE_MODELS if str(name).endswith(each)), None)
        if suffix is None:
            text = f"architectures: {name!r} is not supported, a ...ForCausalLM is"
            keys.unsupported.append(text)
        elif str(name).removesuffix(suffix).lower() != keys.kind.replace("_", ""):
            keys.wrong.append(f"architectures: {name!r} is none of model_type {keys.kind!r}")
    if keys.get("quantization_config", None) is not None:
        keys.unsupported.append(
            "quantization_config: weights that are stored quantised are not supported; leave it "
            "out, and say how they are stored in training.precision or training.fine_tuning.base"
        )
    for key in ("rope_scaling", "rope_parameters"):
        rope = keys.get(key, {})
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in _ROPES:
            text = f"{key}: rope_type {kind!r} is not supported{did_you_mean(str(kind), _ROPES)}"
            keys.unsupported.append(text)
