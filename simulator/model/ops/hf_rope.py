"""Rotary position embedding (arXiv:2104.09864) as Hugging Face transformers writes it.

cos and sin are made once a forward, in fp32, and cast to the activations' dtype; q and k are
turned as x · cos + rotate_half(x) · sin (``apply_rotary_pos_emb`` in its modeling files).
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.ops.elementwise import add, subtract
from simulator.model.ops.plain import plain
from simulator.model.ops.pointwise import times_table
from simulator.model.ops.views import concat, rotate_half, slice_of, split


def rotary_tables(b: GraphBuilder, positions: int, dim: int) -> tuple[int, int]:
    """cos and sin, [1, s, dim]: lent to the blocks."""
    seq = b.of(positions).shape[-1]
    fp32 = DType.FP32
    narrow, wide = (1, seq, dim // 2), (1, seq, dim)
    wide_ids = plain(b, "positions.float", (1, seq), fp32, (positions,))
    angles = plain(b, "angles", narrow, fp32, (wide_ids,))
    both = plain(b, "angles.cat", wide, fp32, (angles,))
    with b.frame(angles):
        return _scaled_tables(b, both)


def _scaled_tables(b: GraphBuilder, angles: int) -> tuple[int, int]:
    """cos and sin in fp32, times a factor, cast to the activations' dtype."""
    shape, fp32 = b.of(angles).shape, DType.FP32
    with b.frame(angles) as frame:
        scaled = []
        suffix = "" if b.dtype is fp32 else ".scaled"
        for name in ("cos", "sin"):
            raw = plain(b, f"{name}.raw", shape, fp32, (angles,))
            scaled.append(plain(b, f"{name}{suffix}", shape, fp32, (raw,)))
        frame.bind(*scaled)
        if b.dtype is fp32:
            return scaled[0], scaled[1]
        cos, sin = (
            plain(b, name, shape, b.dtype, (source,))
            for name, source in zip(("cos", "sin"), scaled, strict=True)
        )
    return cos, sin


def half_tables(b: GraphBuilder, positions: int, dim: int) -> tuple[int, int]:
    """cos and sin of each pair of dims once, [1, s, dim / 2] (gpt-oss): lent to the blocks."""
    seq = b.of(positions).shape[-1]
    narrow = (1, seq, dim // 2)
    wide_ids = plain(b, "positions.float", (1, seq), DType.FP32, (positions,))
    return _scaled_tables(b, plain(b, "angles", narrow, DType.FP32, (wide_ids,)))


def borrow_half_tables(b: GraphBuilder, seq: int, dim: int) -> tuple[int, int]:
    """The half tables that the embedding's graph lends."""
    return borrow_tables(b, seq, dim // 2)


def borrow_tables(b: GraphBuilder, seq: int, dim: int) -> tuple[int, int]:
    """The tables that the embedding's graph lends."""
    return b.borrow("cos", (1, seq, dim)), b.borrow("sin", (1, seq, dim))


def rotate(b: GraphBuilder, x: int, tables: tuple[int, int], name: str) -> int:
    """One of q and k, turned in its own dtype over its whole last dim."""
    cos, sin = tables
    straight = times_table(b, x, cos, f"{name}.cos")
    turned = times_table(b, rotate_half(b, x, f"{name}.half"), sin, f"{name}.sin")
    return add(b, straight, turned, f"{name}.rotated")


def rotate_pairs(
    b: GraphBuilder, heads: tuple[int, int], tables: tuple[int, int]
) -> tuple[int, int]:
    """q and k turned in pairs of an even and the next odd dim, put together as halves.

    ``apply_rotary_pos_emb_interleave``: the slices of both are taken first.
    """
    names = ("q", "k")
    slices = []
    for x, name in zip(heads, names, strict=True):
        half = (*b.of(x).shape[:-1], b.of(x).shape[-1] // 2)
        slices.append([slice_of(b, x, f"{name}.{which}", half) for which in ("even", "odd")])
    q, k = (
        _turn_pairs(b, pair, tables, name, b.of(x).shape)
        for pair, x, name in zip(slices, heads, names, strict=True)
    )
    return q, k


def rotate_halves(b: GraphBuilder, x: int, tables: tuple[int, int], name: str) -> int:
    """x turned by half tables: its halves are a split, put together again (gpt-oss)."""
    shape = b.of(x).shape
    half = (*shape[:-1], shape[-1] // 2)
    pair = split(b, x, f"{name}.chunk", {f"{name}.even": half, f"{name}.odd": half})
    return _turn_pairs(b, pair, tables, name, shape)


def _turn_pairs(
    b: GraphBuilder,
    pair: Sequence[int],
    tables: tuple[int, int],
    name: str,
    shape: tuple[int, ...],
) -> int:
    (even, odd), (cos, sin) = pair, tables
    straight = times_table(b, even, cos, f"{name}.even.cos")
    first = subtract(b, straight, times_table(b, odd, sin, f"{name}.odd.sin"), f"{name}.first")
    straight = times_table(b, odd, cos, f"{name}.odd.cos")
    second = add(b, straight, times_table(b, even, sin, f"{name}.even.sin"), f"{name}.second")
    return concat(b, (first, second), f"{name}.turned", shape)


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
