"""Adapters by peft beside frozen weights, and parts of a model frozen."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, PURE_BF16, Case

_QV = {"lora": "wq,wv", "rank": 8}
_HF: dict[str, Any] = {"wrap": "block_root", "mb": 1, "seq": 512, "n_layers": 3}
_QWEN = {**_HF, "model": "hf:qwen2.5-0.5b", "mb": 2}
_GPT2 = {**_HF, "model": "hf:gpt2", "mb": 3, "seq": 300}

_ACCELERATE: dict[str, Any] = {"master": "bf16", "param_dtype": "bf16", "reduce_dtype": "bf16"}
"""The bf16 of accelerate's FSDP plugin around a model loaded in bf16."""


def _peft(**settings: Any) -> Case:
    """FSDP1 as transformers' Trainer has it: each adapter a unit, stored in fp32."""
    options = {"upcast": True, "use_orig_params": False, **settings.pop("options", {})}
    usual: dict[str, Any] = {"framework": "fsdp1", "wrap": "peft", **_ACCELERATE, **_QV}
    return Case(**{**usual, **settings}, options=tuple(options.items()))


def _mixed(**settings: Any) -> Case:
    """FSDP1 with trained and frozen weights in one flat parameter."""
    return Case(**{"framework": "fsdp1", "wrap": "block_root", **settings})


FSDP1_TUNED = {
    "fsdp1_peft_reentrant": _peft(ac="full_reentrant"),
    "fsdp1_peft_reentrant_ga2_clip": _peft(ac="full_reentrant", grad_accum=2, clip=True),
    "fsdp1_peft_reentrant_ga2_nosync": _peft(
        ac="full_reentrant", grad_accum=2, ga_sync=False, reshard=False
    ),
    "fsdp1_peft_reentrant_orig": _peft(
        ac="full_reentrant", options={"upcast": False, "use_orig_params": True}
    ),
    "fsdp1_peft_full": _peft(ac="full", lora="all-linear"),
    "fsdp1_peft_every2_no_prefetch": _peft(
        ac="selective_2", options={"backward_prefetch": None, "limit_all_gathers": False}
    ),
    "fsdp1_peft": _peft(lora="wo,w1", reshard=False),
    "fsdp1_peft_mixed_hybrid2x4": _peft(
        hsdp=2,
        lora="wk,wo",
        ac="full_reentrant",
        lora_dropout=0.1,
        master="fp32",
        reduce_dtype="fp32",
        options={"upcast": False},
    ),
    "fsdp1_peft_odd_ws7": _peft(model="titan:odd", ws=7, mb=1, seq=333, ac="full_reentrant"),
    "fsdp1_hf_peft_reentrant": _peft(
        **{**_QWEN, "wrap": "peft", "lora": "q_proj,v_proj"}, ac="full_reentrant"
    ),
    "fsdp1_hf_peft_reentrant_orig_autocast": _peft(
        **{**_QWEN, "wrap": "peft", "lora": "q_proj,v_proj,o_proj"},
        ac="full_reentrant",
        autocast=True,
        options={"use_orig_params": True},
    ),
    "fsdp1_hf_peft_reentrant_autocast": _peft(
        **{**_QWEN, "wrap": "peft", "lora": "all-linear"}, ac="full_reentrant", autocast=True
    ),
    "fsdp1_hf_peft_reentrant_projects": _peft(
        **{**_QWEN, "model": "hf:llama-2-7b", "wrap": "peft", "lora": "q_proj,v_proj"},
        ac="full_reentrant",
        loss="chunked-head-8",
    ),
    "fsdp1_reentrant": _mixed(ac="full_reentrant"),
    "fsdp1_reentrant_frozen_root": _mixed(
        ac="full_reentrant", freeze=("embed", "norm", "head"), options=(("use_orig_params", False),)
    ),
    "ddp_lora_reentrant": Case(
        **{"framework": "ddp", "ws": 4, "ac": "full_reentrant"}, **_QV, **PURE_BF16
    ),
    "fsdp1_reentrant_frozen": _mixed(ac="full_reentrant", freeze=("embed", "layers.0", "layers.2")),
    "fsdp1_lora_mixed": _mixed(lora="wq,w2", rank=8),
    "fsdp1_lora_mixed_full_ga2": _mixed(ac="full", clip=True, grad_accum=2, **_QV),
    "fsdp1_lora_mixed_reentrant": _mixed(ac="full_reentrant", **_QV, **_ACCELERATE),
    "fsdp1_lora_trains_head": _mixed(lora="w1", trains=("norm", "head")),
    "fsdp1_freeze_lower_half": _mixed(
        freeze=("embed", "norm", "head", "layers.0", "layers.1"),
        ac="full",
        options=(("use_orig_params", False),),
    ),
    "fsdp1_freeze_embed": _mixed(freeze=("embed",)),
}

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
    "hf_single_lora_wide_autocast_reentrant": Case(
        **{**_QWEN, "ws": 1, "wrap": "titan", "framework": "single", "autocast": True},
        lora="q_proj,v_proj,o_proj",
        lora_dtype="fp32",
        ac="full_reentrant",
        **PURE_BF16,
    ),
    "hf_single_lora_wide_norms": Case(
        **{**_QWEN, "ws": 1, "wrap": "titan", "framework": "single", "autocast": True},
        lora="q_proj,v_proj,down_proj",
        lora_dtype="fp32",
        wide_norms=True,
        ac="full_reentrant",
        **PURE_BF16,
    ),
    "hf_single_lora_wide_norms_none": Case(
        **{**_QWEN, "ws": 1, "wrap": "titan", "framework": "single", "autocast": True},
        lora="all-linear",
        wide_norms=True,
        lora_dtype="fp32",
        **PURE_BF16,
    ),
    "hf_lora_wide_autocast_full": Case(
        lora="all-linear", lora_dtype="fp32", autocast=True, ac="full", **PURE_BF16, **_QWEN
    ),
    "fsdp1_peft_selective_op": _peft(ac="selective_op", lora="all-linear"),
    "fsdp1_peft_full_noearly": _peft(ac="full_noearly", lora="w2"),
    "single_dora_qv": Case(framework="single", ws=1, dora=True, clip=True, **_QV, **PURE_BF16),
    "single_dora_all_wide_dropout": Case(
        **{"framework": "single", "ws": 1, "dora": True, "lora": "all-linear"},
        lora_dtype="fp32",
        lora_dropout=0.1,
        **PURE_BF16,
    ),
    "single_dora_all_wide_full": Case(
        **{"framework": "single", "ws": 1, "dora": True, "lora": "all-linear", "ac": "full"},
        lora_dtype="fp32",
        **PURE_BF16,
    ),
    "dora_all": Case(dora=True, lora="all-linear"),
    "dora_dropout_full": Case(dora=True, lora_dropout=0.1, ac="full", **_QV),
    "dora_selective_op": Case(dora=True, ac="selective_op", **_QV),
    "hf_dora_qv": Case(dora=True, lora="q_proj,v_proj", **_QWEN),
    "single_reentrant": Case(framework="single", ws=1, ac="full_reentrant", **PURE_BF16),
    "single_lora_qv_reentrant": Case(
        framework="single", ws=1, ac="full_reentrant", grad_accum=2, clip=True, **_QV, **PURE_BF16
    ),
    "single_lora_all_reentrant_embed": Case(
        **{"framework": "single", "ws": 1, "ac": "full_reentrant", "lora": "all-linear"},
        trains=("embed",),
        **PURE_BF16,
    ),
    "hf_single_lora_reentrant": Case(
        **{**_QWEN, "ws": 1, "wrap": "titan", "framework": "single"},
        lora="all-linear",
        lora_dropout=0.05,
        ac="full_reentrant",
        **PURE_BF16,
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
    **FSDP1_TUNED,
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
