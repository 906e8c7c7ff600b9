"""Rotary position embedding (arXiv:2104.09864) as Llama writes it: a product of complex numbers."""

from __future__ import annotations

from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.ops.elementwise import cast


def rotate(b: GraphBuilder, q: int, k: int) -> tuple[int, int]:
    """Rotate q[b, s, heads, d] and k[b, s, kv_heads, d] in fp32 and cast back.

    Both are turned before either is cast; the frequencies are a buffer, not a saved activation.
    Source: torchtitan, torchtitan/models/common/rope.py, ``ComplexRoPE.apply_rotary_emb``.
    """
    dtype = b.of(q).dtype
    with b.frame(q, k) as frame:
        wide = [cast(b, x, DType.FP32, f"{n}.float") for x, n in ((q, "q"), (k, "k"))]
        frame.bind(*wide)
        turned = [_multiply(b, x, n) for x, n in zip(wide, "qk", strict=True)]
        frame.bind(*turned)
        q_rotated, k_rotated = (
            cast(b, x, dtype, f"{n}.rotated") for x, n in zip(turned, "qk", strict=True)
        )
    return q_rotated, k_rotated


def _multiply(b: GraphBuilder, x: int, name: str) -> int:
    """Complex product with the frequencies [s, d/2]; backward needs their conjugate, a copy."""
    shape = b.of(x).shape
    out = b.value(f"{name}.product", shape, DType.FP32)
    size = prod(shape) * 4
    frequencies = (shape[1], shape[3] // 2)
    given = b.table("freqs_cis", frequencies, DType.COMPLEX64)
    table = b.bytes(given)
    kernel = Elementwise(name=f"{name}.rotate", kind="rope", read=size + table, written=size)
    b.op(
        f"{name}.rotate",
        "rope",
        (x, given),
        (out,),
        kernel,
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
