"""Each setting alone, on a model of four small layers."""

from __future__ import annotations

from recorder.case import AS_STORED, PURE_BF16, Case

SMALL = {
    "debug_ws8": Case(clip=True),
    "debug_ws8_full": Case(ac="full"),
    "dbg_selop": Case(ac="selective_op"),
    "dbg_noreshard": Case(ac="full", reshard=False),
    "dbg_purebf16": Case(**PURE_BF16),
    "dbg_foreach_clip": Case(ac="full", opt="adamw_foreach", clip=True),
    "dbg_unfused": Case(fused_rms=False),
    "dbg_ws6": Case(ws=6, mb=3, seq=384, ac="selective_op"),
    "dbg_gqan_selop": Case(ac="selective_op", gqa_native=True),
    "dbg_ws1": Case(ws=1),
    "fp16_scaled": Case(param_dtype="fp16", loss_scaling=True),
    "fp16_scaled_clip": Case(param_dtype="fp16", loss_scaling=True, clip=True),
    "fp16_scaled_sgdm": Case(param_dtype="fp16", loss_scaling=True, opt="sgdm", ac="full"),
    "fp16_scaled_sgdm_clip": Case(
        param_dtype="fp16", loss_scaling=True, opt="sgdm", clip=True, grad_accum=2, hsdp=2
    ),
    "dbg_ws300_full": Case(ws=300, ac="full"),
    "d3_reshard2": Case(ac="full", reshard=2),
    "d3_reshard4_none": Case(reshard=4),
    "d3_ga2_sync": Case(ac="full", grad_accum=2),
    "d3_ga3_nosync": Case(ac="full", grad_accum=3, ga_sync=False),
    "d3_ga3_nosync_noreshard": Case(
        ac="full", grad_accum=3, ga_sync=False, reshard_after_backward=False
    ),
    "d3_ga3_sync_noreshard": Case(ac="full", grad_accum=3, reshard_after_backward=False),
    "d3_ga3_sync_noreshard_none": Case(
        grad_accum=3, reshard_after_backward=False, wrap="block_root", reduce_dtype="bf16"
    ),
    "d3_ga2_sync_noreshard_hsdp2": Case(
        ac="full", grad_accum=2, reshard_after_backward=False, hsdp=2, prefetch_fwd=1
    ),
    "d3_ga2_sync_noreshard_slices": Case(grad_accum=2, reshard_after_backward=False, reshard=2),
    "d3_ga3_nosync_bf16": Case(ac="full", reduce_dtype="bf16", grad_accum=3, ga_sync=False),
    "d3_ga2_nosync_pure": Case(grad_accum=2, ga_sync=False, **PURE_BF16),
    "d3_hsdp2x4": Case(ac="full", hsdp=2),
    "d3_hsdp2x4_bf16": Case(ac="full", reduce_dtype="bf16", hsdp=2),
    "d3_hsdp2x4_bf16_ga2": Case(ac="full", reduce_dtype="bf16", grad_accum=2, hsdp=2),
    "d3_offload": Case(ac="full", opt=None, cpu_offload=True),
    "d3_prefetch1": Case(ac="full", prefetch_fwd=1),
    "d3_prefetch2": Case(prefetch_fwd=2),
    "d3_blockroot": Case(ac="full", wrap="block_root"),
    "d3_blockroot_none": Case(wrap="block_root"),
    "d3_oldtitan": Case(ac="selective_op", wrap="oldtitan"),
    "d3_blockroot_ga2_nosync": Case(ac="full", wrap="block_root", grad_accum=2, ga_sync=False),
    "d3_blockroot_noreshard": Case(ac="full", reshard=False, wrap="block_root"),
    "d3_sgdm": Case(ac="full", opt="sgdm"),
    "d3_loop": Case(ac="full", opt="adamw_loop"),
    "d3_sel2": Case(ac="selective_2"),
    "d3_noearly": Case(ac="full_noearly"),
    "d3_autocast": Case(autocast=True, **AS_STORED),
    "d3_autocast_full": Case(ac="full", autocast=True, **AS_STORED),
    "d3_fp32": Case(ac="full", attn="efficient", **AS_STORED),
    "d3_fp32_none": Case(attn="efficient", **AS_STORED),
    "d3_bf16master_fp32reduce": Case(ac="full", master="bf16"),
}
