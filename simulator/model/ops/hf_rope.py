"""Rotary position embedding (arXiv:2104.09864) as Hugging Face transformers writes it.

cos and sin are made once a forward, in fp32, and cast to the activations' dtype; q and k are
turned as x · cos + rotate_half(x) · sin (``apply_rotary_pos_emb`` in its modeling files).
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.ops.elementwise import add
from simulator.model.ops.plain import plain
from simulator.model.ops.pointwise import times_table
from simulator.model.ops.views import concat, rotate_half, slice_of


def rotary_tables(b: GraphBuilder, positions: int, dim: int) -> tuple[int, int]:
    """cos and sin, [1, s, dim]: lent to the blocks."""
    seq = b.of(positions).shape[-1]
    fp32 = DType.FP32
    narrow, wide = (1, seq, dim // 2), (1, seq, dim)
    wide_ids = plain(b, "positions.float", (1, seq), fp32, (positions,))
    angles = plain(b, "angles", narrow, fp32, (wide_ids,))
    both = plain(b, "angles.cat", wide, fp32, (angles,))
    with b.frame(angles, both) as frame:
        scaled = []
        suffix = "" if b.dtype is fp32 else ".scaled"
        for name in ("cos", "sin"):
            raw = plain(b, f"{name}.raw", wide, fp32, (both,))
            scaled.append(plain(b, f"{name}{suffix}", wide, fp32, (raw,)))
        frame.bind(*scaled)
        if b.dtype is fp32:
            return scaled[0], scaled[1]
        cos, sin = (
            plain(b, name, wide, b.dtype, (source,))
            for name, source in zip(("cos", "sin"), scaled, strict=True)
        )
    return cos, sin


def borrow_tables(b: GraphBuilder, seq: int, dim: int) -> tuple[int, int]:
    """The tables that the embedding's graph lends."""
    return b.borrow("cos", (1, seq, dim)), b.borrow("sin", (1, seq, dim))


def rotate(b: GraphBuilder, x: int, tables: tuple[int, int], name: str) -> int:
    """One of q and k, turned in its own dtype over its whole last dim."""
    cos, sin = tables
    straight = times_table(b, x, cos, f"{name}.cos")
    turned = times_table(b, rotate_half(b, x, f"{name}.half"), sin, f"{name}.sin")
    return add(b, straight, turned, f"{name}.rotated")


def rotate_part(
    b: GraphBuilder, heads: Sequence[int], tables: tuple[int, int], *, at_once: bool
) -> tuple[int, ...]:
    """q and k turned over their first dims only and put together again with the rest.

    ``at_once``: each is put together right away (Phi-3); else both are turned first (GPT-NeoX).
    The results lie [b, heads, s, d] in memory.
    """
    dim = b.of(tables[0]).shape[-1]
    parts = []
    for x, name in zip(heads, "qk", strict=True):
        lead, width = b.of(x).shape[:-1], b.of(x).shape[-1]
        turning = x if dim == width else slice_of(b, x, f"{name}.turning", (*lead, dim))
        parts.append((turning, slice_of(b, x, f"{name}.rest", (*lead, width - dim))))

    def together(index: int, turned: int) -> int:
        rest = parts[index][1]
        return concat(b, (turned, rest), f"{'qk'[index]}.together", b.of(heads[index]).shape)

    if at_once:
        return tuple(
            together(i, rotate(b, parts[i][0], tables, name)) for i, name in enumerate("qk")
        )
    turned = [rotate(b, parts[i][0], tables, name) for i, name in enumerate("qk")]
    return tuple(together(i, x) for i, x in enumerate(turned))
