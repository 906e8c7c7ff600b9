"""Other frameworks than FSDP2: none at all, FSDP1 and DDP."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from recorder.case import AS_STORED, PURE_BF16, Case

_ONE: dict[str, Any] = {"framework": "single", "ws": 1}
_BF16: dict[str, Any] = {**_ONE, **PURE_BF16}
_FP32: dict[str, Any] = {**_ONE, **AS_STORED}
_TWO: dict[str, Any] = {"model": "hf:qwen2.5-0.5b", "n_layers": 2, "mb": 2, "seq": 256, **_BF16}

SINGLE = {
    "single_bf16": Case(**_BF16),
    "single_bf16_full_ga3_clip": Case(ac="full", grad_accum=3, clip=True, **_BF16),
    "single_bf16_selective_op_foreach": Case(ac="selective_op", opt="adamw_foreach", **_BF16),
    "single_bf16_sgdm": Case(opt="sgdm", clip=True, **_BF16),
    "single_autocast": Case(autocast=True, **_FP32),
    "single_autocast_full_ga2": Case(autocast=True, ac="full", grad_accum=2, clip=True, **_FP32),
    "single_fp32_efficient": Case(attn="efficient", opt="adamw_loop", **_FP32),
    "single_odd_bf16": Case(model="titan:odd", mb=1, seq=333, grad_accum=2, clip=True, **_BF16),
    "single_hf_qwen_tied_ga2": Case(
        model="hf:qwen2.5-0.5b", n_layers=2, seq=256, grad_accum=2, clip=True, **_BF16
    ),
    "single_full_reentrant": Case(ac="full_reentrant", loss="chunked-head-8", **_BF16),
    "single_hf_every2_reentrant_ga2": Case(
        **{**_TWO, "n_layers": 3, "loss": "chunked-head-8"},
        **{"ac": "selective_2_reentrant", "grad_accum": 2},
    ),
    "single_in_backward_full": Case(in_backward=True, ac="full", loss="chunked-head-8", **_BF16),
    "single_hf_in_backward_foreach": Case(in_backward=True, opt="adamw_foreach", **_TWO),
    "single_hf_upcast_dropped": Case(loss="hf-upcast-dropped-logits", **_TWO),
    "single_hf_shifted": Case(loss="hf-shifted-logits", **_TWO),
    "single_hf_shifted_one": Case(loss="hf-shifted-logits", **{**_TWO, "mb": 1}),
    "single_hf_gpt2": Case(model="hf:gpt2", n_layers=3, mb=3, seq=300, **_BF16),
}

_FSDP1: dict[str, Any] = {"framework": "fsdp1", "wrap": "block_root"}


def _fsdp1(**settings: Any) -> Case:
    """FSDP1 around each block; what is no field of a case is an option of FSDP1's."""
    known = {field.name for field in fields(Case)}
    options = tuple((key, value) for key, value in settings.items() if key not in known)
    return Case(**{**_FSDP1, **{k: v for k, v in settings.items() if k in known}}, options=options)


FSDP1 = {
    "fsdp1": _fsdp1(),
    "fsdp1_full": _fsdp1(ac="full"),
    "fsdp1_selective_op_clip_foreach": _fsdp1(ac="selective_op", clip=True, opt="adamw_foreach"),
    "fsdp1_post_full": _fsdp1(backward_prefetch="BACKWARD_POST", ac="full"),
    "fsdp1_no_prefetch": _fsdp1(backward_prefetch=None, limit_all_gathers=False),
    "fsdp1_forward_prefetch": _fsdp1(prefetch_fwd=1, ac="full"),
    "fsdp1_forward_prefetch_post_ga2": _fsdp1(
        prefetch_fwd=1, backward_prefetch="BACKWARD_POST", grad_accum=2, ga_sync=False
    ),
    "fsdp1_grad_op": _fsdp1(reshard=False),
    "fsdp1_grad_op_ga3_nosync": _fsdp1(reshard=False, grad_accum=3, ga_sync=False, clip=True),
    "fsdp1_ga3": _fsdp1(grad_accum=3, ac="full"),
    "fsdp1_ga3_nosync": _fsdp1(grad_accum=3, ga_sync=False, ac="full"),
    "fsdp1_hybrid2x4": _fsdp1(hsdp=2, ac="full"),
    "fsdp1_hybrid2x4_bf16_grad_op": _fsdp1(hsdp=2, reduce_dtype="bf16", reshard=False),
    "fsdp1_bf16_reduce_ga2": _fsdp1(reduce_dtype="bf16", grad_accum=2),
    "fsdp1_pure_bf16": _fsdp1(ac="full", clip=True, **PURE_BF16),
    "fsdp1_autocast_full": _fsdp1(autocast=True, ac="full", **AS_STORED),
    "fsdp1_odd_ws7": _fsdp1(model="titan:odd", ws=7, mb=1, seq=333),
    "fsdp1_odd_ws7_flat_clip": _fsdp1(
        model="titan:odd", ws=7, use_orig_params=False, clip=True, ac="full"
    ),
    "fsdp1_flat_ga2_nosync": _fsdp1(use_orig_params=False, grad_accum=2, ga_sync=False),
    "fsdp1_flat_none_wrap": _fsdp1(use_orig_params=False, wrap="none", opt="adamw_foreach"),
    "fsdp1_embedding_blocks": _fsdp1(wrap=("embedding", "blocks")),
    "fsdp1_embedding_blocks_forward_prefetch": _fsdp1(
        wrap=("embedding", "blocks"), prefetch_fwd=1, use_orig_params=False
    ),
    "fsdp1_hf_qwen_tied_full": _fsdp1(
        model="hf:qwen2.5-0.5b", n_layers=2, seq=256, ac="full", clip=True
    ),
    "fsdp1_7b_full": _fsdp1(model="titan:llama2_7b", mb=1, seq=4096, ac="full"),
}

_PADDED: dict[str, Any] = {"model": "hf:llama-3.2-1b", "n_layers": 2, "seq": 256, "mask": "padded"}
_ONES: dict[str, Any] = {"model": "hf:gpt2", "n_layers": 3, "mb": 1, "seq": 300, "mask": "ones"}
_DDP: dict[str, Any] = {"framework": "ddp", **AS_STORED}
_HF_FLOAT8: dict[str, Any] = {
    "model": "hf:qwen3-8b",
    "n_layers": 2,
    "seq": 256,
    "fp8": "tensorwise",
}

FLOAT8_AND_PADDED = {
    "single_bf16_float8": Case(fp8="tensorwise", **_BF16),
    "single_bf16_float8_selective_op_ga2": Case(
        fp8="tensorwise", ac="selective_op", grad_accum=2, clip=True, **_BF16
    ),
    "single_autocast_float8": Case(fp8="tensorwise", autocast=True, **_FP32),
    "single_hf_float8_full": Case(ac="full", **_HF_FLOAT8, **_BF16),
    "ddp_float8_full": Case(fp8="tensorwise", ac="full", **{**_DDP, "master": "bf16"}),
    "fsdp1_float8": _fsdp1(fp8="tensorwise"),
    "fsdp1_float8_full_flat_ga2": _fsdp1(
        fp8="tensorwise", ac="full", use_orig_params=False, grad_accum=2, ga_sync=False
    ),
    "single_hf_autocast_float8_full": Case(
        autocast=True, **{**_FP32, **_HF_FLOAT8, "model": "hf:qwen2.5-7b", "ac": "full"}
    ),
    "hf_float8_none": Case(wrap="block_root", **_HF_FLOAT8),
    "hf_float8_biased_full": Case(
        wrap="block_root", **{**_HF_FLOAT8, "model": "hf:qwen2.5-7b", "ac": "full"}
    ),
    "hf_float8_biased_gathered": Case(
        wrap="block_root", **{**_HF_FLOAT8, "model": "hf:qwen2.5-7b", "fp8": "all_gather"}
    ),
    "hf_float8_gpt_neox": Case(wrap="block_root", **{**_HF_FLOAT8, "model": "hf:gpt-neox-20b"}),
    "single_padded": Case(**_PADDED, **_BF16),
    "single_padded_autocast_full": Case(autocast=True, ac="full", **_PADDED, **_FP32),
    "ddp_padded_autocast": Case(autocast=True, **_PADDED, **_DDP),
    "ddp_masked_by_ones": Case(**_ONES, **{**_DDP, "master": "bf16"}),
    "fsdp1_padded_full": _fsdp1(ac="full", **_PADDED),
    "fsdp1_masked_by_ones": _fsdp1(**_ONES),
}

FRAMEWORKS = {**SINGLE, **FSDP1, **FLOAT8_AND_PADDED}
