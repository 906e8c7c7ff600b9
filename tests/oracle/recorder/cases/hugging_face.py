"""Published models by transformers' classes, three layers of each."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, PURE_BF16, Case


def _hf(model: str, **settings: Any) -> Case:
    usual = {"mb": 1, "seq": 2048, "wrap": "block_root", "n_layers": 3}
    return Case(**{**usual, "model": f"hf:{model}", **settings})


SHAPES: dict[str, dict[str, Any]] = {
    "mistral_7b": {"model": "mistral-7b", "seq": 4096},
    "qwen2.5_7b": {"model": "qwen2.5-7b", "mb": 2},
    "qwen3_8b": {"model": "qwen3-8b", "mb": 2},
    "llama3.2_1b": {"model": "llama-3.2-1b"},
    "phi4": {"model": "phi-4"},
    "llama3_8b": {"model": "llama-3.1-8b"},
    "qwen2.5_0.5b": {"model": "qwen2.5-0.5b", "mb": 2},
    "gpt2_flash": {"model": "gpt2", "mb": 2, "seq": 1024},
    "gpt2_eager": {"model": "gpt2", "mb": 2, "seq": 512, "attn": "eager"},
    "gpt_neox_20b_flash": {"model": "gpt-neox-20b", "mb": 2, "seq": 1024},
    "gemma2_9b_eager": {"model": "gemma-2-9b", "mb": 2, "seq": 1024, "attn": "eager"},
    "llama3_8b_eager": {"model": "llama-3.1-8b", "mb": 2, "seq": 1024, "attn": "eager"},
    "gpt_neox_20b_eager": {"model": "gpt-neox-20b", "mb": 2, "seq": 512, "attn": "eager"},
    "phi3_mini_eager": {"model": "phi-3-mini", "mb": 2, "seq": 512, "attn": "eager"},
    "mixtral_8x7b": {"model": "mixtral-8x7b", "seq": 1024},
    "qwen3_30b_a3b": {"model": "qwen3-30b-a3b", "mb": 2, "seq": 1000},
    "deepseek_v2_lite": {"model": "deepseek-v2-lite", "mb": 2, "seq": 1024},
    "gpt_oss_20b_eager": {"model": "gpt-oss-20b", "mb": 2, "seq": 512, "attn": "eager"},
    "deepseek_v3": {"model": "deepseek-v3", "seq": 1024, "ws": 64, "n_layers": 5},
}
_SMALL = {"model": "llama-3.2-1b", "seq": 1024}
HUGGING_FACE = {
    **{
        f"{name}_{ac}": _hf(ac=ac, **shape)
        for ac in ("full", "none", "selective_op")
        for name, shape in SHAPES.items()
    },
    "llama3.2_1b_ga2": _hf(ac="full", grad_accum=2, **_SMALL),
    "llama3.2_1b_ga2_nosync": _hf(ac="full", grad_accum=2, ga_sync=False, **_SMALL),
    "llama3.2_1b_pure": _hf(opt="adamw_foreach", clip=True, **_SMALL, **PURE_BF16),
}
_PADDED: dict[str, dict[str, Any]] = {
    "llama3.2_1b": {"model": "llama-3.2-1b", "mb": 2, "seq": 512},
    "qwen2.5_0.5b_eager": {"model": "qwen2.5-0.5b", "mb": 3, "seq": 300, "attn": "eager"},
    "gpt2": {"model": "gpt2", "mb": 2, "seq": 512},
    "gpt_neox_20b": {"model": "gpt-neox-20b", "mb": 2, "seq": 512},
    "gemma2_9b": {"model": "gemma-2-9b", "mb": 2, "seq": 512, "attn": "eager"},
    "mpt_7b": {"model": "mpt-7b", "mb": 2, "seq": 256, "attn": "eager"},
    "mistral_7b_window": {"model": "mistral-7b", "mb": 2, "seq": 4096},
    "phi4": {"model": "phi-4", "mb": 2, "seq": 512},
}
PADDED = {
    **{
        f"padded_{name}_{ac}": _hf(mask="padded", ac=ac, **shape)
        for ac in ("full", "none")
        for name, shape in _PADDED.items()
    },
    "padded_qwen3_8b_one_selective_op": _hf(
        model="qwen3-8b", seq=512, mask="padded", ac="selective_op"
    ),
    "masked_by_ones_llama3.2_1b": _hf(mask="ones", **_SMALL),
    "masked_by_ones_phi3_mini_eager": _hf(
        model="phi-3-mini", seq=256, attn="eager", mask="ones", ac="full"
    ),
}
EFFICIENT = {
    f"efficient_{name}_{ac}": _hf(attn="efficient", ac=ac, mb=2, seq=520, **settings)
    for ac in ("full", "none")
    for name, settings in {
        "llama2_7b": {"model": "llama-2-7b"},
        "gpt2_fp32": {"model": "gpt2", **AS_STORED},
        "gpt_neox_20b": {"model": "gpt-neox-20b"},
        "phi3_mini": {"model": "phi-3-mini"},
    }.items()
}
_TINY = {"model": "qwen2.5-0.5b", "seq": 512}
_GPT2 = {"model": "gpt2", "seq": 300, "mb": 3}
_MPT = {"model": "mpt-7b", "seq": 256, "attn": "eager"}
_LLAMA_2 = {"model": "llama-2-7b", "seq": 512}
HOSTILE_HUGGING_FACE = {
    "llama2_7b_titan_wrap_reshard2": _hf(wrap="titan", reshard=2, **_LLAMA_2),
    "llama2_7b_titan_wrap_oldlast_selective_op": _hf(
        wrap="titan_oldlast", ac="selective_op", **_LLAMA_2
    ),
    "llama2_7b_blocks_head_ws6_full": _hf(wrap=("blocks", "head"), ws=6, ac="full", **_LLAMA_2),
    "qwen2.5_0.5b_wrap_none_ga2_nosync": _hf(wrap="none", grad_accum=2, ga_sync=False, **_TINY),
    "qwen2.5_0.5b_hsdp2x4_bf16_ga2": _hf(
        hsdp=2, reduce_dtype="bf16", grad_accum=2, ac="full", **_TINY
    ),
    "qwen2.5_0.5b_every2_noearly_prefetch1": _hf(ac="selective_2_noearly", prefetch_fwd=1, **_TINY),
    "qwen2.5_0.5b_fp32_eager": _hf(attn="eager", **AS_STORED, **_TINY),
    "gpt2_ws7_clip_foreach_full_noearly": _hf(
        ws=7, clip=True, opt="adamw_foreach", ac="full_noearly", **_GPT2
    ),
    "gpt2_pure_bf16_noreshard_sgdm": _hf(reshard=False, opt="sgdm", **PURE_BF16, **_GPT2),
    "gpt2_eager_offload_bf16": _hf(
        attn="eager", cpu_offload=True, opt=None, reduce_dtype="bf16", **_GPT2
    ),
    "mpt_7b_eager_ga3_nosync": _hf(
        model="mpt-7b", seq=256, attn="eager", grad_accum=3, ga_sync=False, ac="full"
    ),
    "mpt_7b_eager_pure_selective_op": _hf(ac="selective_op", **PURE_BF16, **_MPT),
    "mpt_7b_eager_wrap_none_every2": _hf(ac="selective_2", wrap="none", **_MPT),
    "mpt_7b_eager_none": _hf(mb=3, **_MPT),
    "phi3_mini_reshard4_selective_op": _hf(
        model="phi-3-mini", seq=512, reshard=4, ac="selective_op"
    ),
    "qwen3_8b_part_layernorm": _hf(model="qwen3-8b", ac="part_layernorm", seq=512),
    "phi4_part_mlp": _hf(model="phi-4", ac="part_mlp", seq=512),
    "gpt2_part_all": _hf(ac="part_core_attn+mlp+layernorm", **_GPT2),
    "gpt_neox_20b_part_all_noearly": _hf(
        model="gpt-neox-20b", seq=256, ac="part_core_attn+mlp+layernorm_noearly"
    ),
    "mistral_7b_part_core_attn": _hf(model="mistral-7b", ac="part_core_attn", seq=4096),
    "llama3_8b_part_all_mb2": _hf(
        model="llama-3.1-8b", ac="part_core_attn+mlp+layernorm", mb=2, seq=512
    ),
    "gpt2_save_addmm_layernorm": _hf(ac="save_addmm/2,native_layer_norm", **_GPT2),
    "mixtral_8x7b_ws3_ga2_nosync": _hf(
        model="mixtral-8x7b", seq=2048, ws=3, ac="full", grad_accum=2, ga_sync=False
    ),
    "qwen3_30b_a3b_hsdp2_eager_attention": _hf(
        model="qwen3-30b-a3b", seq=300, mb=3, hsdp=2, attn="eager", reduce_dtype="bf16"
    ),
    "llama3_8b_full_offload": _hf(model="llama-3.1-8b", ac="full_offload", seq=512),
    "gpt2_full_offload": _hf(ac="full_offload", **_GPT2),
    "gpt_neox_20b_one_layer_ws1": _hf(model="gpt-neox-20b", seq=256, n_layers=1, ws=1),
}
