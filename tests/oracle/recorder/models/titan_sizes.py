"""Dimensions of decoders in torchtitan's style: published ones and small ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The dimensions of a decoder. ``fused`` and ``grouped`` choose kernels, not sizes."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int = 0
    fused: bool = True
    grouped: bool = False

    @property
    def head_dim(self) -> int:
        """Size of one head."""
        return self.dim // self.heads


def _size(dim: int, layers: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> Size:
    return Size(dim=dim, layers=layers, heads=heads, kv_heads=kv_heads, ffn=ffn, vocab=vocab)


SIZES = {
    "debug": _size(256, 4, 8, 4, 768, 2048),
    "odd": _size(200, 3, 5, 1, 555, 1999),
    "llama2_7b": _size(4096, 32, 32, 32, 11008, 32000),
    "llama2_13b": _size(5120, 40, 40, 40, 13824, 32000),
    "llama2_70b": _size(8192, 80, 64, 8, 28672, 32000),
    "llama3_8b": _size(4096, 32, 32, 8, 14336, 128256),
    "llama3_70b": _size(8192, 80, 64, 8, 28672, 128256),
    "llama3_405b": _size(16384, 126, 128, 8, 53248, 128256),
}
"""``odd`` divides by nothing that ranks come in."""
