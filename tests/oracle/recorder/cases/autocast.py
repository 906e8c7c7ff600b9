"""Published models by transformers' classes under ``torch.autocast``, three layers of each."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, Case


def _autocast(**settings: Any) -> Case:
    usual = {"mb": 2, "seq": 512, "wrap": "block_root", "n_layers": 3, "autocast": True}
    return Case(**{**usual, **AS_STORED, **settings})


SHAPES: dict[str, dict[str, Any]] = {
    "llama3.2_1b": {"model": "hf:llama-3.2-1b"},
    "llama2_7b_eager": {"model": "hf:llama-2-7b", "attn": "eager", "seq": 256},
    "mistral_7b_window": {"model": "hf:mistral-7b", "mb": 1, "seq": 4096},
    "qwen2.5_7b": {"model": "hf:qwen2.5-7b"},
    "qwen3_8b": {"model": "hf:qwen3-8b"},
    "qwen3_8b_eager": {"model": "hf:qwen3-8b", "attn": "eager", "seq": 256},
    "gemma2_9b": {"model": "hf:gemma-2-9b", "attn": "eager"},
    "phi3_mini": {"model": "hf:phi-3-mini", "mb": 1},
    "phi4_eager": {"model": "hf:phi-4", "attn": "eager", "seq": 256},
    "gpt2_eager": {"model": "hf:gpt2", "attn": "eager", "seq": 300},
    "gpt_neox_20b": {"model": "hf:gpt-neox-20b"},
    "gpt_neox_20b_eager": {"model": "hf:gpt-neox-20b", "attn": "eager", "seq": 256, "mb": 1},
    "mpt_7b": {"model": "hf:mpt-7b", "attn": "eager", "seq": 256},
}
_TINY = {"model": "hf:qwen2.5-0.5b", "seq": 300, "mb": 3}
_SMALL = {"model": "hf:llama-3.2-1b"}
HUGGING_FACE_AUTOCAST = {
    **{
        f"autocast_{name}_{ac}": _autocast(ac=ac, **shape)
        for ac in ("full", "none")
        for name, shape in SHAPES.items()
    },
    "qwen2.5_0.5b_autocast_full": _autocast(ac="full", **{**_TINY, "mb": 1, "seq": 512}),
    "gpt2_autocast": _autocast(model="hf:gpt2", seq=300, mb=3),
    "autocast_llama3.2_1b_selective_op": _autocast(ac="selective_op", **_SMALL),
    "autocast_gpt2_selective_op": _autocast(ac="selective_op", model="hf:gpt2"),
    "autocast_llama3.2_1b_part_all": _autocast(ac="part_core_attn+mlp+layernorm", **_SMALL),
    "autocast_gpt2_part_mlp_noearly": _autocast(ac="part_mlp_noearly", model="hf:gpt2"),
    "autocast_qwen2.5_0.5b_ga2_nosync_full": _autocast(
        ac="full", grad_accum=2, ga_sync=False, **_TINY
    ),
    "autocast_qwen2.5_0.5b_bf16_noreshard": _autocast(reshard=False, reduce_dtype="bf16", **_TINY),
    "autocast_qwen2.5_0.5b_eager_every2_noearly": _autocast(
        ac="selective_2_noearly", attn="eager", **_TINY
    ),
    "autocast_llama2_7b_titan_wrap_full": _autocast(wrap="titan", ac="full", model="hf:llama-2-7b"),
}
