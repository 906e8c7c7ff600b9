"""FSDP1 and DDP, whose recordings no test reads yet."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, Case


def _fsdp1(ac: str = "full", precision: dict[str, Any] | None = None, **options: Any) -> Case:
    return Case(framework="fsdp1", ac=ac, options=tuple(options.items()), **(precision or {}))


def _ddp(settings: dict[str, Any] | None = None, **options: Any) -> Case:
    usual = {**AS_STORED, "autocast": True, "ac": "full", **(settings or {})}
    return Case(framework="ddp", options=tuple(options.items()), **usual)


OTHERS = {
    "fsdp1": _fsdp1(),
    "fsdp1_none": _fsdp1(ac="none"),
    "fsdp1_shard_grad_op": _fsdp1(strategy="SHARD_GRAD_OP"),
    "fsdp1_backward_post": _fsdp1(backward_prefetch="BACKWARD_POST"),
    "fsdp1_no_backward_prefetch": _fsdp1(backward_prefetch=None),
    "fsdp1_forward_prefetch": _fsdp1(forward_prefetch=True),
    "fsdp1_fp32": _fsdp1(precision={**AS_STORED, "attn": "efficient"}),
    "fsdp1_low_precision_grads": _fsdp1(keep_low_precision_grads=True),
    "ddp_autocast": _ddp(),
    "ddp_bucket_views": _ddp(gradient_as_bucket_view=True),
    "ddp_big_buckets": _ddp(bucket_cap_mb=200),
    "ddp_bf16": _ddp({"master": "bf16", "autocast": False}),
}
