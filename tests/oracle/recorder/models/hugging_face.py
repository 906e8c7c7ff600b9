"""transformers' own classes, with the shapes that published models' config.json state."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from recorder.case import Case
from recorder.losses import hugging_face_loss
from recorder.models.built import Built

SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
Sizes = tuple[int, int, int, int, int, int]
Config = tuple[str, dict[str, Any]]
LAST_NORMS = ("norm", "final_layer_norm", "ln_f", "norm_f")


def _dense(kind: str, sizes: Sizes, **keys: Any) -> Config:
    """Keys of config.json; those that are not given stand as transformers has them."""
    tied = keys.pop("tied", False)
    shape = dict(zip(SIZES, sizes, strict=True))
    return kind, {**shape, "tie_word_embeddings": tied, **keys}


def _gpt2(layers: int, hidden: int, heads: int) -> Config:
    sizes = {"n_layer": layers, "n_embd": hidden, "n_head": heads}
    return "gpt2", {**sizes, "n_positions": 1024, "vocab_size": 50257}


_NEOX = {
    "rotary_pct": 0.25,
    "use_parallel_residual": True,
    "max_position_embeddings": 2048,
    "hidden_act": "gelu_fast",
}
_LLAMA_3 = {"max_position_embeddings": 131072}
_MPT = {"d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432}
CONFIGS: dict[str, Config] = {
    "llama-2-7b": _dense("llama", (32, 4096, 11008, 32, 32, 32000), max_position_embeddings=4096),
    "llama-3.1-8b": _dense("llama", (32, 4096, 14336, 32, 8, 128256), **_LLAMA_3),
    "llama-3.2-1b": _dense(
        "llama", (16, 2048, 8192, 32, 8, 128256), head_dim=64, tied=True, **_LLAMA_3
    ),
    "mistral-7b": _dense(
        *("mistral", (32, 4096, 14336, 32, 8, 32000)),
        max_position_embeddings=32768,
        sliding_window=4096,
    ),
    "qwen2.5-0.5b": _dense("qwen2", (24, 896, 4864, 14, 2, 151936), tied=True),
    "qwen2.5-7b": _dense("qwen2", (28, 3584, 18944, 28, 4, 152064)),
    "qwen3-8b": _dense("qwen3", (36, 4096, 12288, 32, 8, 151936), head_dim=128),
    "gemma-2-9b": _dense(
        *("gemma2", (42, 3584, 14336, 16, 8, 256000)),
        head_dim=256,
        query_pre_attn_scalar=256,
        tied=True,
    ),
    "phi-3-mini": _dense("phi3", (32, 3072, 8192, 32, 32, 32064), pad_token_id=0),
    "phi-4": _dense("phi3", (40, 5120, 17920, 40, 10, 100352), pad_token_id=0),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "gpt-neox-20b": _dense("gpt_neox", (44, 6144, 24576, 64, 64, 50432), **_NEOX),
    "mpt-7b": ("mpt", {**_MPT, "tie_word_embeddings": True}),
    "mixtral-8x7b": _dense("mixtral", (32, 4096, 14336, 32, 8, 32000)),
    "qwen3-30b-a3b": _dense(
        *("qwen3_moe", (48, 2048, 6144, 32, 4, 151936)),
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        norm_topk_prob=True,
    ),
    "deepseek-v2-lite": _dense(
        *("deepseek_v2", (27, 2048, 10944, 16, 16, 102400)),
        moe_intermediate_size=1408,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        first_k_dense_replace=1,
        q_lora_rank=None,
    ),
    "gpt-oss-20b": _dense(
        *("gpt_oss", (24, 2880, 2880, 64, 8, 201088)), num_local_experts=32, num_experts_per_tok=4
    ),
    "deepseek-v3": _dense(*("deepseek_v3", (61, 7168, 18432, 128, 128, 129280))),
}


def hugging_face(config: Config, case: Case) -> Built:
    """Build a published model for a case, with as many layers as the case says."""
    kind, keys = config
    settings = transformers.AutoConfig.for_model(kind, **keys)
    if case.n_layers is not None:
        settings.num_hidden_layers = case.n_layers
        if hasattr(settings, "layer_types"):
            settings.layer_types = settings.layer_types[: case.n_layers]
    settings._attn_implementation = "eager" if case.attn == "eager" else "sdpa"
    return of_settings(settings, case.mask, case.loss)


def of_settings(settings: Any, mask: str, loss: str = "eager") -> Built:
    """Build the model of a transformers config; ``mask`` and ``loss`` as in ``Case``."""
    settings.use_cache = False
    # it reads the batch's positions to see whether sequences are packed; here they never are
    masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    attend_by(None)
    _read_masks(all_ones=mask == "ones")
    root = MODEL_FOR_CAUSAL_LM_MAPPING[type(settings)](settings)
    as_stored(root, torch.get_default_dtype())
    root.train()
    return _built(root, loss)


def as_stored(root: nn.Module, dtype: torch.dtype) -> None:
    """All parameters in one dtype: routers are made in fp32, and FSDP takes no mixture."""
    for parameter in root.parameters():
        parameter.data = parameter.data.to(dtype)


def attend_by(around: Any) -> None:
    """Let ``around`` call the attention function, as ``checkpoint`` would (None: nobody does)."""
    plain = sdpa_attention_forward
    ALL_ATTENTION_FUNCTIONS["sdpa"] = plain if around is None else partial(around, plain)


def _built(root: Any, loss: str) -> Built:
    base = root.base_model
    blocks = next(child for child in base.children() if isinstance(child, nn.ModuleList))
    norm = next(getattr(base, name) for name in LAST_NORMS if hasattr(base, name))
    return Built(
        root=root,
        embedding=root.get_input_embeddings(),
        blocks=blocks,
        head=[norm, root.get_output_embeddings()],
        loss=hugging_face_loss(root, loss),
    )


def _read_masks(*, all_ones: bool) -> None:
    """A fake mask cannot be read: answer for it, after the kernels that a real one would take."""

    def fast_all(mask: Tensor) -> bool:
        torch.eq(mask.sum(), mask.numel())
        return all_ones

    masking_utils.is_tracing = lambda *_: False
    masking_utils.fast_all = fast_all
