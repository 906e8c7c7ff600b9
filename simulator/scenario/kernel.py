"""Which attention kernel runs: PyTorch's own choice may be another than the one asked for."""

from __future__ import annotations

from simulator.model.config import ModelConfig


def why_efficient(model: ModelConfig, seq_len: int, *, padded: bool) -> str:
    """Why sdpa takes its efficient kernel with transformers' modules; empty where it takes flash.

    Source: ``use_flash_attention`` of ATen/native/transformers/cuda/sdp_utils.cpp, which takes
    neither a mask nor values narrower than keys; transformers' masking_utils.py builds masks.
    """
    if model.style != "hf":
        return ""
    if padded:
        return "padding comes with a mask"
    if model.window is not None and seq_len >= model.window:
        return f"a window of {model.window:,} comes with a mask"
    return "values are narrower than keys" if model.v_width != model.head_dim else ""


def usual_attention(model: ModelConfig | None, efficient: str) -> str:
    """What runs where nothing is asked for; ``efficient``: why it is not flash, if so."""
    if model is not None and model.attention == "eager":
        return "eager"
    return "efficient" if efficient else "flash"
