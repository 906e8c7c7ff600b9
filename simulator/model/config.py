"""The shape of a decoder-only transformer, and whose modules run it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Architecture of one model.

    ``style`` says whose modules run (``torchtitan``), hence what autograd keeps. ``rms_norm``:
    ``fused`` (aten::_fused_rms_norm, torch >= 2.9 on CUDA) or ``composite``. ``kv_expand``: k and
    v are copied to all heads before attention (False: the kernel takes grouped heads natively).
    """

    name: str
    family: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    head_dim: int
    style: str = "torchtitan"
    rms_norm: str = "fused"
    kv_expand: bool = True
    source: str = ""
