"""Scaled-dot-product attention by the flash kernel, and the copy of k and v to all heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    batch, seq, heads, head_dim = b.of(q).shape
    if head_dim > FLASH_MAX_HEAD_DIM:
        raise UnsupportedError(
            f"flash attention runs heads of up to {FLASH_MAX_HEAD_DIM}, and these have {head_dim}: "
            "PyTorch would fall back to the math path, which is not yet supported",
            key="training.attention",
        )
    statistics = {
        "logsumexp": ((batch, heads, seq), DType.FP32),
        "seed": ((2,), DType.UINT64),
        "offset": ((1,), DType.UINT64),
    }
    return _fused(b, "flash", (q, k, v), None, statistics, name)


def efficient_attention(
    b: GraphBuilder, q: int, k: int, v: int, bias: int | None, name: str
) -> int:
    """aten::_scaled_dot_product_efficient_attention with an additive bias [b, 1, s, s], or causal.

    What CUDA takes when there is a mask, or in fp32. Keeps q, k, v, the bias, the output, the fp32
    log-sum-exp (rows padded to 32) and seed and offset; k and v have all heads.
    """
    batch, seq, heads, _ = b.of(q).shape
    statistics = {
        "logsumexp": ((batch, heads, -(-seq // 32) * 32), DType.FP32),
        "seed": ((1,), DType.INT64),
        "offset": ((1,), DType.INT64),
    }
    return _fused(b, "efficient", (q, k, v), bias, statistics, name)


def _fused(
    b: GraphBuilder,
    kernel: str,
    heads: tuple[int, int, int],
    bias: int | None,
    statistics: Mapping[str, tuple[tuple[int, ...], DType]],
    name: str,
) -> int:
    """One kernel forward, one backward; keeps all it reads, its output and its ``statistics``."""
    q, k, v = heads
    batch, seq, count, head_dim = b.of(q).shape
    v_head_dim = b.of(v).shape[-1]
    dtype = b.of(q).dtype
    out = b.value(f"{name}.out", (batch, seq, count, v_head_dim), dtype)
    results = (out, *(b.value(f"{name}.{each}", *known) for each, known in statistics.items()))
    forward = Attention(
        name=name,
        kernel=kernel,
        batch=batch,
        heads=count,
        kv_heads=b.of(k).shape[2],
        seq_q=seq,
        seq_k=seq,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        dtype=dtype,
        causal=bias is None,
        backward=False,
    )
    rule = Rule(name)
    rule.launch(
        replace(forward, name=f"{name}.backward", backward=True),
        *(
            GradTensor(name=f"{name}.grad_{each}", shape=b.of(x).shape, dtype=dtype, value=x)
            for each, x in zip("qkv", heads, strict=True)
        ),
        whole=True,
    )
    read = heads if bias is None else (*heads, bias)
    kind = f"{kernel}_attention"
    b.op(name, kind, read, results, forward, saves=(*read, *results), rule=rule)
    return out
