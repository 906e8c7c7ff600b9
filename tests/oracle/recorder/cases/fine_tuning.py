"""Adapters by peft beside frozen weights, and parts of a model frozen."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, PURE_BF16, Case

_QV = {"lora": "wq,wv", "rank": 8}
_HF: dict[str, Any] = {"wrap": "block_root", "mb": 1, "seq": 512, "n_layers": 3}
_QWEN = {**_HF, "model": "hf:qwen2.5-0.5b", "mb": 2}
_GPT2 = {**_HF, "model": "hf:gpt2", "mb": 3, "seq": 300}

FINE_TUNING = {
    "lora_all": Case(lora="all-linear"),
    "lora_all_full": Case(lora="all-linear", ac="full"),
    "lora_qv_full_block": Case(ac="full", wrap="block_root", clip=True, **_QV),
    "lora_qv_selective_op": Case(ac="selective_op", **_QV),
    "lora_qv_every2_noreshard": Case(ac="selective_2", reshard=False, **_QV),
    "lora_all_pure_bf16_foreach": Case(lora="all-linear", opt="adamw_foreach", **PURE_BF16),
    "lora_all_fp32_adapters": Case(
        lora="all-linear", master="bf16", param_dtype=None, reduce_dtype=None, lora_dtype="fp32"
    ),
    "lora_all_dropout": Case(lora="all-linear", lora_dropout=0.05, ac="full"),
    "lora_dropout_none": Case(lora="wo,w2", lora_dropout=0.1),
    "lora_trains_head": Case(lora="w1", trains=("norm", "head")),
    "lora_trains_embed": Case(trains=("embed",), **_QV),
    "lora_ga2": Case(grad_accum=2, ac="full", **_QV),
    "lora_ga2_nosync": Case(grad_accum=2, ga_sync=False, **_QV),
    "lora_none_wrap": Case(wrap="none", lora="wk"),
    "lora_v_ws1": Case(ws=1, lora="wv"),
    "lora_v_odd_ws7": Case(model="titan:odd", ws=7, lora="wv", rank=3, ac="full"),
    "lora_autocast": Case(autocast=True, lora="all-linear", **AS_STORED),
    "lora_hsdp2x4_bf16": Case(hsdp=2, reduce_dtype="bf16", **_QV),
    "single_lora_all": Case(framework="single", ws=1, lora="all-linear", **PURE_BF16),
    "single_lora_v_chunked_head": Case(
        framework="single", ws=1, loss="chunked-head-8", lora="wv", **PURE_BF16
    ),
    "single_lora_qv_full_ga2": Case(
        framework="single", ws=1, ac="full", grad_accum=2, clip=True, **_QV, **PURE_BF16
    ),
    "hf_single_lora_autocast_full": Case(
        **{**_QWEN, "ws": 1, "wrap": "titan"},
        framework="single",
        lora="q_proj,v_proj",
        autocast=True,
        ac="full",
        **AS_STORED,
    ),
    "hf_single_lora_bf16_autocast": Case(
        **{**_QWEN, "ws": 1, "wrap": "titan", "n_layers": 2, "loss": "chunked-head-8"},
        framework="single",
        lora="q_proj,v_proj",
        lora_dtype="fp32",
        autocast=True,
        master="bf16",
        param_dtype=None,
        reduce_dtype=None,
    ),
    "freeze_embed": Case(freeze=("embed",)),
    "freeze_embed_full_block": Case(freeze=("embed",), ac="full", wrap="block_root"),
    "freeze_lower_half": Case(freeze=("embed", "layers.0", "layers.1")),
    "freeze_lower_half_block_full": Case(
        freeze=("embed", "layers.0", "layers.1"), wrap="block_root", ac="full"
    ),
    "freeze_lower_half_noreshard": Case(
        freeze=("embed", "layers.0", "layers.1"), reshard=False, ac="selective_op"
    ),
    "freeze_lower_half_reshard2": Case(freeze=("embed", "layers.0", "layers.1"), reshard=2),
    "freeze_middle": Case(freeze=("layers.1", "layers.2"), grad_accum=2, ga_sync=False),
    "freeze_all_but_head": Case(freeze=("embed", "layers")),
    "freeze_all_but_head_block": Case(freeze=("embed", "layers"), wrap="block_root"),
    "freeze_head": Case(freeze=("norm", "head")),
    "freeze_layers": Case(freeze=("layers",)),
    "hf_lora_all_full": Case(lora="all-linear", ac="full", **_QWEN),
    "hf_lora_qv": Case(lora="q_proj,v_proj", **_QWEN),
    "hf_lora_gpt2": Case(lora="c_attn", lora_dropout=0.1, **_GPT2),
    "hf_lora_autocast": Case(lora="q_proj,v_proj", autocast=True, **AS_STORED, **_QWEN),
    "hf_lora_all_autocast_full": Case(
        lora="all-linear", lora_dropout=0.05, autocast=True, ac="full", **AS_STORED, **_QWEN
    ),
    "hf_lora_gpt2_autocast": Case(lora="c_attn", autocast=True, **AS_STORED, **_GPT2),
    "hf_freeze_embed": Case(freeze=("embed",), **{**_HF, "model": "hf:llama-2-7b"}),
}
