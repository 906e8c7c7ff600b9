"""Reads a Hugging Face ``config.json`` (as a mapping) into a :class:`ModelConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import UnsupportedError, UserError, did_you_mean
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
        raise UnsupportedError(f"model_type {kind!r} is not supported{did_you_mean(kind, READERS)}")
    keys = Keys(config, kind)
    read = reader(keys)
    if keys.missing:
        raise UserError(f"config of model_type {kind!r} lacks {', '.join(keys.missing)}")
    label = name or str(config.get("_name_or_path") or config.get("name_or_path") or kind)
    usual = read.pop("attention", "sdpa")
    keys.refuse("_attn_implementation", "sdpa", "eager", default=usual)
    return ModelConfig(
        name=label,
        family=kind,
        style="hf",
        attention=keys.get("_attn_implementation", usual),
        source="config.json",
        **read,
    )
