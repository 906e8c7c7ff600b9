"""DDP, whose recordings no test reads yet."""

from __future__ import annotations

from typing import Any

from recorder.case import AS_STORED, Case


def _ddp(settings: dict[str, Any] | None = None, **options: Any) -> Case:
    usual = {**AS_STORED, "autocast": True, "ac": "full", **(settings or {})}
    return Case(framework="ddp", options=tuple(options.items()), **usual)


OTHERS = {
    "ddp_autocast": _ddp(),
    "ddp_bucket_views": _ddp(gradient_as_bucket_view=True),
    "ddp_big_buckets": _ddp(bucket_cap_mb=200),
    "ddp_bf16": _ddp({"master": "bf16", "autocast": False}),
}
