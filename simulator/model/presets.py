"""Shapes of published models. Sources: the models' own config.json and papers."""

from __future__ import annotations

from simulator.model.config import ModelConfig
from simulator.model.hf_presets import HF_PRESETS

_LLAMA_2 = "arXiv:2307.09288, and config.json of meta-llama/Llama-2-*-hf"
_LLAMA_3 = "arXiv:2407.21783, and config.json of meta-llama/Llama-3.1-*"


def _llama(
    name: str, layers: int, hidden: int, ffn: int, heads: int, kv_heads: int, vocab: int
) -> ModelConfig:
    return ModelConfig(
        name=name,
        family="llama",
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        vocab=vocab,
        head_dim=hidden // heads,
        source=_LLAMA_2 if vocab == 32000 else _LLAMA_3,
    )


PRESETS: dict[str, ModelConfig] = {
    config.name: config
    for config in (
        _llama("llama-2-7b", 32, 4096, 11008, 32, 32, 32000),
        _llama("llama-2-13b", 40, 5120, 13824, 40, 40, 32000),
        _llama("llama-2-70b", 80, 8192, 28672, 64, 8, 32000),
        _llama("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128256),
        _llama("llama-3.1-70b", 80, 8192, 28672, 64, 8, 128256),
        _llama("llama-3.1-405b", 126, 16384, 53248, 128, 8, 128256),
        *HF_PRESETS,
    )
}
"""Preset name -> shape."""
