"""Scaled-dot-product attention by the flash kernel, and the copy of k and v to all heads."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.kernels import Attention, Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor
from simulator.model.rule import Rule

FLASH_MAX_HEAD_DIM = 256
"""Source: ``check_head_dim_size_flash``, ATen/native/transformers/cuda/sdp_utils.cpp."""


def repeat_heads(b: GraphBuilder, x: int, heads: int, name: str) -> int:
    """``repeat_kv`` of [b, s, kv_heads, d]: expand and reshape; backward sums over the repeats.

    A copy to all heads that keeps nothing; of one head a view.
    """
    batch, seq, kv_heads, head_dim = shape = b.of(x).shape
    if kv_heads == heads:
        return x
    if kv_heads == 1:
        rule = Rule(f"{name}.expand")
        rule.make("sum", shape, b.of(x).dtype, value=x, read=b.bytes(x) * heads)
        return b.view(x, f"{name}.expanded", (batch, seq, heads, head_dim), rule)
    out = b.value(f"{name}.expanded", (batch, seq, heads, head_dim), b.of(x).dtype)
    small, large = b.bytes(x), b.bytes(out)
    b.op(
        f"{name}.expand",
        "clone",
        (x,),
        (out,),
        Elementwise(name=f"{name}.expand", kind="copy", read=large, written=large),
        gradients=(
            GradTensor(name=f"{name}.expand.grad", shape=shape, dtype=b.of(x).dtype, value=x),
        ),
        backward=(
            BackwardStep(
                kernel=Elementwise(
                    name=f"{name}.expand.backward", kind="copy", read=large, written=small
                ),
                outputs=(0,),
            ),
        ),
    )
    return out


def flash_attention(b: GraphBuilder, q: int, k: int, v: int, name: str) -> int:
    """aten::_scaled_dot_product_flash_attention, causal, no mask.

    Keeps q, k, v, the output, the fp32 log-sum-exp [b, heads, s] and the dropout seed and offset.
    q[b, s, heads, d]; k and v may have fewer heads (native grouped-query attention). What lives
    only inside the kernel's launcher (dq accumulator) is not an autograd tensor and not counted.
    """
    batch, seq, heads, head_dim = shape = b.of(q).shape
    if head_dim > FLASH_MAX_HEAD_DIM:
        raise UnsupportedError(
            f"flash attention runs heads of up to {FLASH_MAX_HEAD_DIM}, and these have {head_dim}: "
            "PyTorch would fall back to the math path, which is not yet supported"
        )
    kv_shape = b.of(k).shape
    dtype = b.of(q).dtype
    out = b.value(f"{name}.out", shape, dtype)
    lse = b.value(f"{name}.logsumexp", (batch, heads, seq), DType.FP32)
    seed = b.value(f"{name}.seed", (2,), DType.UINT64)
    offset = b.value(f"{name}.offset", (1,), DType.UINT64)

    def kernel(*, backward: bool) -> Attention:
        return Attention(
            name=f"{name}.backward" if backward else name,
            kernel="flash",
            batch=batch,
            heads=heads,
            kv_heads=kv_shape[2],
            seq_q=seq,
            seq_k=seq,
            head_dim=head_dim,
            dtype=dtype,
            causal=True,
            backward=backward,
        )

    b.op(
        name,
        "flash_attention",
        (q, k, v),
        (out, lse, seed, offset),
        kernel(backward=False),
        saves=(q, k, v, out, lse, seed, offset),
        gradients=(
            GradTensor(name=f"{name}.grad_q", shape=shape, dtype=dtype, value=q),
            GradTensor(name=f"{name}.grad_k", shape=kv_shape, dtype=dtype, value=k),
            GradTensor(name=f"{name}.grad_v", shape=kv_shape, dtype=dtype, value=v),
        ),
        backward=(BackwardStep(kernel=kernel(backward=True), outputs=(0, 1, 2)),),
    )
    return out


def efficient_attention(
    b: GraphBuilder, q: int, k: int, v: int, bias: int | None, name: str
) -> int:
    """aten::_scaled_dot_product_efficient_attention with an additive bias [b, 1, s, s], or causal.

    What CUDA takes when there is a mask, or in fp32. Keeps q, k, v, the bias, the output, the fp32
    log-sum-exp (rows padded to 32) and seed and offset; k and v have all heads.
    """
    batch, seq, heads, head_dim = shape = b.of(q).shape
    dtype = b.of(q).dtype
    out = b.value(f"{name}.out", shape, dtype)
    lse = b.value(f"{name}.logsumexp", (batch, heads, -(-seq // 32) * 32), DType.FP32)
    seed = b.value(f"{name}.seed", (1,), DType.INT64)
    offset = b.value(f"{name}.offset", (1,), DType.INT64)

    def kernel(*, backward: bool) -> Attention:
        return Attention(
            name=f"{name}.backward" if backward else name,
            kernel="efficient",
            batch=batch,
            heads=heads,
            kv_heads=heads,
            seq_q=seq,
            seq_k=seq,
            head_dim=head_dim,
            dtype=dtype,
            causal=bias is None,
            backward=backward,
        )

    read = (q, k, v) if bias is None else (q, k, v, bias)
    rule = Rule(name)
    rule.launch(
        kernel(backward=True),
        *(
            GradTensor(name=f"{name}.grad_{n}", shape=shape, dtype=dtype, value=x)
            for n, x in (("q", q), ("k", k), ("v", v))
        ),
    )
    b.op(
        name,
        "efficient_attention",
        read,
        (out, lse, seed, offset),
        kernel(backward=False),
        saves=(*read, out, lse, seed, offset),
        rule=rule,
    )
    return out
