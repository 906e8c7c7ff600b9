"""Losses, each with the wraps and the accumulation that it may trip over."""

from __future__ import annotations

from typing import Any

from recorder.case import Case

_NO_SYNC: dict[str, Any] = {"grad_accum": 2, "ga_sync": False}
_BF16_NO_SYNC: dict[str, Any] = {**_NO_SYNC, "reduce_dtype": "bf16"}
_PARTS = ("blocks", "head")


def _titan(loss: str, **settings: Any) -> Case:
    return Case(**{"loss": loss, "seq": 96, "n_layers": 2, **settings})


def _hf(model: str, loss: str, **settings: Any) -> Case:
    usual = {"model": f"hf:{model}", "mb": 2, "seq": 96, "n_layers": 2, "wrap": "block_root"}
    return Case(**{**usual, "loss": loss, **settings})


def _tied(loss: str, **settings: Any) -> Case:
    return _hf("llama-3.2-1b", loss, **settings)


def _apart(loss: str, **settings: Any) -> Case:
    return _hf("llama-2-7b", loss, **settings)


LOSSES = {
    "kept": _titan("eager-kept-logits"),
    "kept_block_ga2": _titan("eager-kept-logits", wrap="block_root", grad_accum=2),
    "kept_none_full": _titan("eager-kept-logits", wrap="none", ac="full"),
    "upcast": _titan("hf-upcast"),
    "upcast_oldtitan_ga2_nosync": _titan("hf-upcast", wrap="oldtitan", **_NO_SYNC),
    "upcast_parts": _titan("hf-upcast", wrap=_PARTS, mb=1),
    "chunked8_block": _titan("chunked-8", wrap="block_root", ac="full"),
    "chunked3_none_ga2_nosync_bf16": _titan("chunked-3", wrap="none", mb=1, **_BF16_NO_SYNC),
    "chunked5_oldtitan_ga2_nosync": _titan("chunked-5", wrap="oldtitan", **_NO_SYNC),
    "chunked_logits8": _titan("chunked-logits-8"),
    "chunked_logits3_one_ga2_nosync_full": _titan("chunked-logits-3", mb=1, ac="full", **_NO_SYNC),
    "chunked_logits5_parts_bf16": _titan("chunked-logits-5", wrap=_PARTS, reduce_dtype="bf16"),
    "chunked_head8": _titan("chunked-head-8"),
    "chunked_head4_block_ga2": _titan("chunked-head-4", wrap="block_root", grad_accum=2),
    "chunked_head4_ga2_nosync_bf16": _titan("chunked-head-4", **_BF16_NO_SYNC),
    "chunked_head7_block_ga2_nosync_bf16": _titan(
        "chunked-head-7", wrap="block_root", **_BF16_NO_SYNC
    ),
    "chunked_head3_parts_full": _titan("chunked-head-3", wrap=_PARTS, mb=1, ac="full"),
    "chunked_head2_noreshard_ga2_nosync": _titan("chunked-head-2", reshard=False, **_NO_SYNC),
    "hf_kept_tied": _tied("eager-kept-logits"),
    "hf_upcast_tied_ga2": _tied("hf-upcast", grad_accum=2),
    "hf_upcast_one": _apart("hf-upcast", mb=1, wrap="titan"),
    "hf_chunked4_tied": _tied("chunked-4"),
    "hf_chunked4_tied_one_ga2_nosync": _tied("chunked-4", mb=1, **_NO_SYNC),
    "hf_chunked_head4_tied": _tied("chunked-head-4"),
    "hf_chunked_head4_tied_none_ga2_nosync_bf16": _tied(
        "chunked-head-4", wrap="none", **_BF16_NO_SYNC
    ),
    "hf_chunked_head4_titan": _apart("chunked-head-4", mb=1, wrap="titan"),
    "hf_chunked_head4_parts_ga2": _apart("chunked-head-4", wrap=_PARTS, grad_accum=2),
}
