"""Rotary position embedding (arXiv:2104.09864) as Llama writes it: a product of complex numbers.

The frequencies are a buffer (torchtitan), or a table of this forward that each product keeps
(transformers' DeepSeek-V2).
"""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.ops.elementwise import cast
from simulator.model.ops.plain import plain
from simulator.model.ops.views import copied_view


def lend_frequencies(b: GraphBuilder, positions: int, dim: int) -> int:
    """polar(1, angles) · scaling, complex64 [1, s, dim / 2]: lent to the blocks."""
    seq = b.of(positions).shape[-1]
    narrow = (1, seq, dim // 2)
    ids = plain(b, "positions.float", (1, seq), DType.FP32, (positions,))
    angles = plain(b, "angles", narrow, DType.FP32, (ids,))
    with b.frame(angles):
        ones = plain(b, "angles.ones", narrow, DType.FP32)
        polar = plain(b, "freqs_cis.polar", narrow, DType.COMPLEX64, (ones, angles))
        return plain(b, "freqs_cis", narrow, DType.COMPLEX64, (polar,))


def borrow_frequencies(b: GraphBuilder, seq: int, dim: int) -> int:
    """The table that the embedding's graph lends."""
    return b.borrow("freqs_cis", (1, seq, dim // 2), DType.COMPLEX64)


def rotate(b: GraphBuilder, q: int, k: int) -> tuple[int, int]:
    """Rotate q[b, s, heads, d] and k[b, s, kv_heads, d] in fp32 and cast back.

    Both are turned before either is cast; the frequencies are a buffer, not a saved activation.
    Source: torchtitan, torchtitan/models/common/rope.py, ``ComplexRoPE.apply_rotary_emb``.
    """
    dtype = b.of(q).dtype
    with b.frame(q, k) as frame:
        wide = [cast(b, x, DType.FP32, f"{n}.float") for x, n in ((q, "q"), (k, "k"))]
        frame.bind(*wide)
        turned = [_multiply(b, x, n, None) for x, n in zip(wide, "qk", strict=True)]
        frame.bind(*turned)
        q_rotated, k_rotated = (
            cast(b, x, dtype, f"{n}.rotated") for x, n in zip(turned, "qk", strict=True)
        )
    return q_rotated, k_rotated


def rotate_lent(b: GraphBuilder, q: int, k: int, table: int, *, copied: bool) -> tuple[int, int]:
    """The same by a lent ``table``: each is cast as soon as it is turned.

    ``copied``: the gradients lie in another order, and ``view_as_real`` makes them contiguous.
    Source: transformers, modeling_deepseek_v2.py, ``apply_rotary_emb``.
    """
    dtype = b.of(q).dtype
    with b.frame(q, k) as frame:
        wide = [cast(b, x, DType.FP32, f"{n}.float") for x, n in ((q, "q"), (k, "k"))]
        frame.bind(*wide)
        rotated = []
        for x, name in zip(wide, "qk", strict=True):
            product = _multiply(b, x, name, table)
            if copied:
                product = copied_view(b, product, f"{name}.real", b.of(x).shape)
            rotated.append(cast(b, product, dtype, f"{name}.rotated"))
    return rotated[0], rotated[1]


def rotate_gathered(b: GraphBuilder, q: int, k: int) -> tuple[int, int]:
    """The same by rows of a cache that each call gathers by the tokens' positions, and keeps.

    Source: torchtune 0.6.1, ``Llama3ScaledRoPE.forward``.
    """
    batch, seq, _, width = b.of(q).shape
    rotated = []
    for x, name in ((q, "q"), (k, "k")):
        with b.frame(x) as frame:
            rows = plain(b, f"{name}.positions", (batch, seq, width // 2), DType.COMPLEX64)
            wide = cast(b, x, DType.FP32, f"{name}.float")
            product = _multiply(b, wide, name, rows)
            frame.bind(rows, wide, product)
            rotated.append(cast(b, product, b.of(x).dtype, f"{name}.rotated"))
    return rotated[0], rotated[1]


def _multiply(b: GraphBuilder, x: int, name: str, known: int | None) -> int:
    """Complex product with the frequencies [s, d/2]; backward needs their conjugate, a copy."""
    shape = b.of(x).shape
    out = b.value(f"{name}.product", shape, DType.FP32)
    size = prod(shape) * 4
    frequencies = (shape[1], shape[3] // 2)
    given = b.table("freqs_cis", frequencies, DType.COMPLEX64) if known is None else known
    table = b.bytes(given)
    kernel = Elementwise(name=f"{name}.rotate", kind="rope", read=size + table, written=size)
    b.op(
        f"{name}.rotate",
        "rope",
        (x, given),
        (out,),
        kernel,
        saves=() if known is None else (known,),
        gradients=(
            GradTensor(name=f"{name}.conjugate", shape=frequencies, dtype=DType.COMPLEX64),
            GradTensor(name=f"{name}.rotate.grad", shape=shape, dtype=DType.FP32, value=x),
        ),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name=f"{name}.conjugate", kind="copy", read=table, written=table
                ),
                outputs=(0,),
            ),
            BackwardStep(kernel=kernel, outputs=(1,), frees=(0,)),
        ),
    )
    return out
