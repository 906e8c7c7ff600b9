"""Published models, on the worlds that they are trained on."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, PURE_BF16, Case


def _real(model: str, **settings: Any) -> Case:
    return Case(**{"model": f"titan:{model}", "mb": 1, "seq": 4096, **settings})


REAL = {
    "7b_ws8_mb1_none": _real("llama2_7b"),
    "7b_ws8_mb1_full": _real("llama2_7b", ac="full"),
    "7b_ws8_mb1_selective_op": _real("llama2_7b", ac="selective_op"),
    "8b_ws8_mb1_none": _real("llama3_8b"),
    "8b_ws8_mb1_selective_op": _real("llama3_8b", ac="selective_op"),
    "8b_ws8_mb1_selective_2": _real("llama3_8b", ac="selective_2"),
    "7b_ws8_mb1_full_steptrace": _real("llama2_7b", ac="full"),
    "7b_ws8_mb2_full": _real("llama2_7b", mb=2, ac="full"),
    "7b_ws8_mb4_full": _real("llama2_7b", mb=4, ac="full"),
    "7b_ws8_mb1_full_noreshard": _real("llama2_7b", ac="full", reshard=False),
    "7b_ws8_mb1_full_reshard4": _real("llama2_7b", ac="full", reshard=4),
    "8b_ws64_mb1_full": _real("llama3_8b", ws=64, ac="full"),
    "8b_ws8_seq8192_full": _real("llama3_8b", seq=8192, ac="full"),
    "8b_ws8_mb1_full_gqanative": _real("llama3_8b", ac="full", gqa_native=True),
    "8b_ws8_mb1_none_gqanative": _real("llama3_8b", gqa_native=True),
    "13b_ws8_mb1_full": _real("llama2_13b", ac="full"),
    "70b_ws64_mb1_full": _real("llama3_70b", ws=64, ac="full"),
    "70b_ws8_mb1_full": _real("llama3_70b", ac="full"),
    "70b_ws512_mb1_full": _real("llama3_70b", ws=512, ac="full"),
    "7b_ws8_mb1_full_reducebf16": _real("llama2_7b", ac="full", reduce_dtype="bf16"),
    "7b_ws8_mb1_full_purebf16": _real("llama2_7b", ac="full", **PURE_BF16),
    "7b_ws8_mb1_full_fp32": _real("llama2_7b", ac="full", attn="efficient", **AS_STORED),
    "7b_ws8_mb1_full_loop": _real("llama2_7b", ac="full", opt="adamw_loop"),
    "7b_ws8_mb1_full_sgdm": _real("llama2_7b", ac="full", opt="sgdm"),
    "7b_ws8_ga4_sync": _real("llama2_7b", ac="full", grad_accum=4),
    "7b_ws8_ga4_nosync": _real("llama2_7b", ac="full", grad_accum=4, ga_sync=False),
    "7b_ws8_ga4_nosync_noreshardbwd": _real(
        "llama2_7b", ac="full", grad_accum=4, ga_sync=False, reshard_after_backward=False
    ),
    "7b_hsdp8x8_full": _real("llama2_7b", ws=64, ac="full", hsdp=8),
    "7b_ws8_cpuoffload_full": _real("llama2_7b", ac="full", opt=None, cpu_offload=True),
    "7b_ws8_blockroot_full": _real("llama2_7b", ac="full", wrap="block_root"),
    "7b_ws8_oldtitan_full": _real("llama2_7b", ac="full", wrap="oldtitan"),
    "7b_ws8_full_prefetch1": _real("llama2_7b", ac="full", prefetch_fwd=1),
    "7b_ws8_full_prefetch2": _real("llama2_7b", ac="full", prefetch_fwd=2),
    "7b_ws6_full": _real("llama2_7b", ws=6, ac="full"),
    "7b_ws8_mb1_full_noearly": _real("llama2_7b", ac="full_noearly"),
    "8b_ws8_mb1_full_noearly": _real("llama3_8b", ac="full_noearly"),
    "70b_ws64_mb1_full_noearly": _real("llama3_70b", ws=64, ac="full_noearly"),
    "8b_ws8_mb1_none_trace": _real("llama3_8b"),
    "7b_hsdp8x8_full_noclear_trace": _real(
        "llama2_7b", ws=64, ac="full", reduce_dtype="bf16", n_layers=8, hsdp=8
    ),
    "7b_ws48_full": _real("llama2_7b", ws=48, ac="full"),
    "8b_ws8_none_noreshard_purebf16": _real(
        "llama3_8b", mb=2, seq=2048, reshard=False, **PURE_BF16
    ),
    "8b_ws24_selop_foreach_clip_seq1000": _real(
        "llama3_8b", ws=24, mb=3, seq=1000, ac="selective_op", opt="adamw_foreach", clip=True
    ),
    "70b_ws64_selop": _real("llama3_70b", ws=64, ac="selective_op"),
    "405b_ws512_full": _real("llama3_405b", ws=512, ac="full"),
    "13b_ws16_selop_purebf16_foreach": _real(
        "llama2_13b", ws=16, mb=2, ac="selective_op", opt="adamw_foreach", **PURE_BF16
    ),
    "llama2_70b_ws128_selop_gqanative": _real(
        "llama2_70b", ws=128, ac="selective_op", gqa_native=True
    ),
    "7b_ws8_selop_reducebf16": _real("llama2_7b", ac="selective_op", reduce_dtype="bf16"),
    "8b_ws8_full_unfusedrms": _real("llama3_8b", ac="full", fused_rms=False),
    "7b_ws8_selop_unfusedrms": _real("llama2_7b", ac="selective_op", fused_rms=False),
    "8b_oldlast_ws8_selop": _real("llama3_8b", ac="selective_op", wrap="titan_oldlast"),
    "7b_ws8_mb1_none_autocast": _real("llama2_7b", autocast=True, **AS_STORED),
    "7b_hsdp8x8_full_reducebf16": _real("llama2_7b", ws=64, ac="full", hsdp=8, reduce_dtype="bf16"),
    "7b_ws8_ga4_nosync_reducebf16": _real(
        "llama2_7b", ac="full", grad_accum=4, ga_sync=False, reduce_dtype="bf16"
    ),
}
