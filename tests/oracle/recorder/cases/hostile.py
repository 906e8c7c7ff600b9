"""Cases that were chosen to break a simulator's rules: settings that meet, and odd sizes."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, PURE_BF16, Case


def _pure(**settings: Any) -> Case:
    return Case(**PURE_BF16, **settings)


def _autocast(**settings: Any) -> Case:
    return Case(**AS_STORED, autocast=True, **settings)


WRAPS = {
    "wrap_none": Case(wrap="none"),
    "wrap_none_full_ga2_nosync": Case(wrap="none", ac="full", grad_accum=2, ga_sync=False),
    "wrap_none_hsdp2x4_bf16_clip": Case(wrap="none", hsdp=2, reduce_dtype="bf16", clip=True),
    "wrap_none_ws1": Case(wrap="none", ws=1),
    "wrap_embedding_blocks": Case(wrap=("embedding", "blocks"), ac="full"),
    "wrap_blocks_head": Case(wrap=("blocks", "head"), ac="full"),
    "wrap_embedding_head": Case(wrap=("embedding", "head"), ac="full"),
    "wrap_embedding": Case(wrap=("embedding",)),
    "wrap_head": Case(wrap=("head",)),
    "wrap_head_ga2_nosync": Case(wrap=("head",), grad_accum=2, ga_sync=False),
    "wrap_embedding_blocks_reshard4": Case(wrap=("embedding", "blocks"), reshard=4),
    "wrap_blocks_head_noreshard_ga2": Case(wrap=("blocks", "head"), reshard=False, grad_accum=2),
}
RESHARDS = {
    "reshard2_selective_op": Case(reshard=2, ac="selective_op"),
    "reshard3_ws6_odd": Case(model="titan:odd", ws=6, reshard=3, ac="full"),
    "reshard8_of_ws8": Case(reshard=8, ac="full"),
    "reshard1": Case(reshard=1, ac="full"),
    "reshard2_oldlast": Case(reshard=2, wrap="titan_oldlast", ac="full"),
    "reshard4_block_oldlast": Case(reshard=4, wrap="oldtitan", ac="full"),
    "reshard2_ga2_nosync": Case(reshard=2, grad_accum=2, ga_sync=False, ac="full"),
    "reshard2_ga2_noreshard_bwd": Case(
        reshard=2, grad_accum=2, ga_sync=False, reshard_after_backward=False
    ),
    "reshard2_hsdp2x4": Case(reshard=2, hsdp=2, ac="full"),
    "reshard2_prefetch1": Case(reshard=2, prefetch_fwd=1, ac="full"),
    "reshard2_pure_bf16": _pure(reshard=2, ac="full"),
}
REPLICAS = {
    "hsdp3x5_odd_bf16_clip_foreach": Case(
        model="titan:odd", ws=15, hsdp=3, reduce_dtype="bf16", clip=True, opt="adamw_foreach"
    ),
    "hsdp2x4_bf16_ga3_nosync": Case(hsdp=2, reduce_dtype="bf16", grad_accum=3, ga_sync=False),
    "hsdp2x4_fp32_ga2_nosync_full": Case(hsdp=2, grad_accum=2, ga_sync=False, ac="full"),
    "hsdp2x4_fp32_ga2": Case(hsdp=2, grad_accum=2, ac="full"),
    "hsdp2x4_block_bf16_ga2": Case(hsdp=2, wrap="block_root", reduce_dtype="bf16", grad_accum=2),
    "hsdp4x1": Case(ws=4, hsdp=4, ac="full"),
    "hsdp4x1_bf16_block": Case(ws=4, hsdp=4, reduce_dtype="bf16", wrap="block_root"),
    "hsdp1x8": Case(hsdp=1, ac="full"),
    "hsdp2x4_pure_bf16": _pure(hsdp=2, ac="full"),
    "hsdp2x4_pure_bf16_ga2": _pure(hsdp=2, grad_accum=2),
    "hsdp2x4_block_fp32_ga3": Case(hsdp=2, wrap="block_root", grad_accum=3, ac="full"),
    "hsdp2x4_embedding_blocks_bf16": Case(
        hsdp=2, wrap=("embedding", "blocks"), reduce_dtype="bf16", ac="full"
    ),
    "hsdp2x4_bf16_master_fp32_reduce": Case(hsdp=2, master="bf16", ac="full"),
}
MICRO_STEPS = {
    "ga2_block": Case(grad_accum=2, wrap="block_root", ac="full"),
    "ga3_block_nosync_bf16": Case(
        grad_accum=3, ga_sync=False, wrap="block_root", reduce_dtype="bf16"
    ),
    "ga2_block_nosync_noreshard_bwd": Case(
        grad_accum=2, ga_sync=False, wrap="block_root", reshard_after_backward=False
    ),
    "ga2_noreshard": Case(grad_accum=2, reshard=False, ac="full"),
    "ga2_nosync_noreshard_prefetch2": Case(
        grad_accum=2, ga_sync=False, reshard_after_backward=False, prefetch_fwd=2
    ),
    "ga2_bf16_master_fp32_reduce": Case(grad_accum=2, master="bf16", ac="full"),
    "ga2_nosync_bf16_master_fp32_reduce": Case(grad_accum=2, ga_sync=False, master="bf16"),
    "ga2_nosync_fp32": Case(grad_accum=2, ga_sync=False, **AS_STORED, attn="efficient"),
    "ga2_bf16": Case(grad_accum=2, reduce_dtype="bf16", ac="full"),
}
PREFETCHES = {
    "prefetch2_noreshard": Case(prefetch_fwd=2, reshard=False, ac="full"),
    "prefetch9": Case(prefetch_fwd=9, ac="full"),
    "prefetch3_block": Case(prefetch_fwd=3, wrap="block_root", ac="full"),
    "prefetch1_oldlast": Case(prefetch_fwd=1, wrap="titan_oldlast", ac="full"),
}
RECOMPUTE = {
    "every2_noearly": Case(ac="selective_2_noearly"),
    "every3_block": Case(ac="selective_3", wrap="block_root"),
    "selective_op_noearly": Case(ac="selective_op_noearly"),
    "selective_op_grouped_composite_norm": Case(
        ac="selective_op", gqa_native=True, fused_rms=False
    ),
    "full_efficient_bf16": Case(ac="full", attn="efficient"),
    "part_core_attn": Case(ac="part_core_attn"),
    "part_core_attn_grouped_noearly": Case(ac="part_core_attn_noearly", gqa_native=True),
    "part_mlp_noearly": Case(ac="part_mlp_noearly", wrap="block_root"),
    "part_layernorm_composite": Case(ac="part_layernorm", fused_rms=False),
    "part_all_odd": Case(model="titan:odd", ws=7, ac="part_core_attn+mlp+layernorm"),
    "part_core_attn_mlp_ga2_nosync": Case(ac="part_core_attn+mlp", grad_accum=2, ga_sync=False),
    "full_offload": Case(ac="full_offload"),
    "full_noearly_offload_block": Case(ac="full_noearly_offload", wrap="block_root", grad_accum=2),
    "selective_op_offload_composite": Case(ac="selective_op_offload", fused_rms=False),
    "every2_offload_odd": Case(model="titan:odd", ws=7, ac="selective_2_offload"),
    "save_nothing": Case(ac="save_"),
    "save_mm": Case(ac="save_mm"),
    "save_mm3_flash": Case(ac="save_mm/3,_scaled_dot_product_flash_attention"),
    "save_silu_norm_noearly": Case(ac="save_silu,_fused_rms_norm_noearly"),
    "save_flash": Case(ac="save__scaled_dot_product_flash_attention"),
    "selective_op_efficient_fp32": Case(ac="selective_op", **AS_STORED, attn="efficient"),
}
OFFLOADS = {
    "offload_pure_bf16": _pure(cpu_offload=True, opt=None, ac="full"),
    "offload_block": Case(cpu_offload=True, opt=None, wrap="block_root"),
    "offload_bf16_ga2": Case(cpu_offload=True, opt=None, reduce_dtype="bf16", grad_accum=2),
    "offload_ga2_nosync": Case(cpu_offload=True, opt=None, grad_accum=2, ga_sync=False),
    "offload_hsdp2x4_bf16": Case(cpu_offload=True, opt=None, hsdp=2, reduce_dtype="bf16"),
    "offload_hsdp2x4_fp32": Case(cpu_offload=True, opt=None, hsdp=2, ac="full"),
    "offload_reshard2": Case(cpu_offload=True, opt=None, reshard=2, ac="full"),
    "offload_ws1": Case(cpu_offload=True, opt=None, ws=1),
    "offload_adamw_foreach": Case(cpu_offload=True, opt="adamw_foreach", ac="full"),
}
SIZES = {
    "odd_ws7": Case(model="titan:odd", ws=7, mb=3, seq=77, ac="selective_op"),
    "odd_ws7_block_pure_bf16": _pure(model="titan:odd", ws=7, wrap="block_root", mb=1, seq=100),
    "odd_ws11_prefetch1": Case(model="titan:odd", ws=11, prefetch_fwd=1),
    "one_layer": Case(n_layers=1, ac="full"),
    "one_layer_block_ga2_nosync": Case(n_layers=1, wrap="block_root", grad_accum=2, ga_sync=False),
    "one_layer_oldlast": Case(n_layers=1, wrap="titan_oldlast", ac="full"),
    "one_layer_reshard2_prefetch1": Case(n_layers=1, reshard=2, prefetch_fwd=1),
    "ws4096": Case(ws=4096, ac="full"),
    "ws1_block_full": Case(ws=1, wrap="block_root", ac="full"),
    "ws1_ga2_nosync": Case(ws=1, grad_accum=2, ga_sync=False),
    "ws1_bf16_reduce": Case(ws=1, reduce_dtype="bf16", ac="full"),
    "ws1_pure_bf16_noreshard": _pure(ws=1, reshard=False),
    "ws1_fp32": Case(ws=1, **AS_STORED, attn="efficient"),
    "one_token": Case(mb=1, seq=1),
}
UPDATES = {
    "clip_foreach_pure_bf16": _pure(clip=True, opt="adamw_foreach", ac="full"),
    "sgdm_block_clip": Case(opt="sgdm", wrap="block_root", clip=True),
    "sgdm_pure_bf16": _pure(opt="sgdm"),
    "loop_pure_bf16_odd": _pure(opt="adamw_loop", model="titan:odd", ws=6),
    "foreach_block_ws1": Case(opt="adamw_foreach", wrap="block_root", ws=1),
    "clip_hsdp3x2": Case(clip=True, ws=6, hsdp=3, opt="adamw_foreach"),
}
AUTOCAST = {
    "autocast_selective_op": _autocast(ac="selective_op"),
    "autocast_block_ga2_nosync": _autocast(wrap="block_root", grad_accum=2, ga_sync=False),
    "autocast_part_core_attn_mlp": _autocast(ac="part_core_attn+mlp"),
    "autocast_grouped_odd": _autocast(model="titan:odd", gqa_native=True, ws=7),
    "autocast_every2_noearly": _autocast(ac="selective_2_noearly"),
    "autocast_noreshard_ga2": _autocast(reshard=False, grad_accum=2),
}
HOSTILE: dict[str, Case] = {
    **{**WRAPS, **RESHARDS, **REPLICAS, **MICRO_STEPS, **PREFETCHES},
    **{**RECOMPUTE, **OFFLOADS, **SIZES, **UPDATES, **AUTOCAST},
}
