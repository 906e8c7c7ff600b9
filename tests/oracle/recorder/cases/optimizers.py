"""Optimizers that FSDP2's sharded parameters can go through, on a model of two small layers."""

from __future__ import annotations

from typing import Any

from recorder.case import PURE_BF16, Case


def _with(opt: str, **changes: Any) -> Case:
    return Case(ac="full", n_layers=2, opt=opt, **changes)


PLAIN = (
    "adamw_foreach_amsgrad",
    "adamw_loop_amsgrad",
    "adamw_fused_amsgrad",
    "adam_fused",
    "adam_foreach",
    "adam_loop",
    "adam_foreach_wd",
    "adam_loop_wd",
    "sgd",
    "sgd_loop",
    "sgd_wd",
    "sgd_loop_wd",
    "sgdm_wd",
    "sgdm_loop_wd",
    "muon",
)

IN_BACKWARD = {
    "loop": _with("adamw_loop", in_backward=True),
    "foreach": _with("adamw_foreach", in_backward=True),
    "fused_none": Case(n_layers=2, in_backward=True),
    "sgd": _with("sgd_wd", in_backward=True),
    "pure": _with("adamw_foreach", in_backward=True, **PURE_BF16),
    "cast": _with("adam_loop_wd", in_backward=True, reduce_dtype="bf16"),
    "hsdp": _with("adamw_loop", in_backward=True, hsdp=2),
    "hsdp_cast": _with("adamw_loop", in_backward=True, hsdp=2, reduce_dtype="bf16"),
    "blockroot": _with("adamw_fused", in_backward=True, wrap="block_root"),
    "noreshard_ws3": _with("adamw_foreach", in_backward=True, reshard=False, ws=3),
}

OPTIMIZERS = {
    **{f"opt_in_backward_{name}": case for name, case in IN_BACKWARD.items()},
    **{f"opt_{name}": _with(name) for name in PLAIN},
    "opt_adam_loop_wd_clip_ws6": _with("adam_loop_wd", clip=True, ws=6),
    "opt_sgd_loop_wd_pure": _with("sgd_loop_wd", **PURE_BF16),
    "opt_muon_loop_pure": _with("muon_loop", **PURE_BF16),
    "opt_muon_fused_hsdp": _with("muon_fused", hsdp=2, clip=True),
    "opt_muon_ws1": _with("muon", ws=1),
    "opt_muon_ws2_blockroot": _with("muon", ws=2, wrap="block_root"),
    "opt_muon_ws64": _with("muon", ws=64),
}
