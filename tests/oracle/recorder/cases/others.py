"""DDP. Only a run's last backward reduces, so buckets keep their first shape, and views of them
come one step late: tests read the recordings where neither shows."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, Case


def _ddp(settings: dict[str, Any] | None = None, **options: Any) -> Case:
    usual = {**AS_STORED, "autocast": True, "ac": "full", **(settings or {})}
    return Case(framework="ddp", options=tuple(options.items()), **usual)


_LORA: dict[str, Any] = {"master": "bf16", "autocast": False, "lora": "wq,wv"}

DDP = {
    "ddp_lora": _ddp({**_LORA, "ac": "none", "opt": "adamw_foreach"}),
    "ddp_lora_full_clip_ga2": _ddp({**_LORA, "grad_accum": 2, "clip": True}),
    "ddp_freeze_embed_autocast": _ddp({"freeze": ("embed",)}),
}
OTHERS = {
    "ddp_autocast": _ddp(),
    "ddp_bucket_views": _ddp(gradient_as_bucket_view=True),
    "ddp_big_buckets": _ddp(bucket_cap_mb=200),
    "ddp_bf16": _ddp({"master": "bf16", "autocast": False}),
}
