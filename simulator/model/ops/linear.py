"""Matrix products with a weight: ``nn.Linear`` without bias (aten::mm)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from simulator.kernels import Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import BackwardStep, GradTensor


def linear(
    b: GraphBuilder, x: int, name: str, out_features: int, *, view: Sequence[int] | None = None
) -> int:
    """y[b, s, out] = x[b, s, in] · W[out, in]ᵀ; ``view``: the shape that y is seen in.

    Dims past the second of x count as features. Keeps x. Backward allocates the weight's gradient
    first, then the input's: MmBackward0 computes ``mat2`` before ``self``.
    """
    source = b.of(x)
    lead, in_features = source.shape[:2], prod(source.shape[2:])
    tokens = prod(lead)
    weight = b.weight(f"{name}.weight", (out_features, in_features))
    y = b.value(f"{name}.out", view or (*lead, out_features))
    dtype = source.dtype
    b.op(
        name,
        "mm",
        (x,),
        (y,),
        Gemm(name=name, m=tokens, n=out_features, k=in_features, dtype=dtype),
        saves=(x,),
        gradients=(
            GradTensor(
                name=f"{name}.weight.grad", shape=weight.shape, dtype=dtype, weight=weight.name
            ),
            GradTensor(name=f"{name}.grad_input", shape=source.shape, dtype=dtype, value=x),
        ),
        backward=(
            BackwardStep(
                kernel=Gemm(
                    name=f"{name}.wgrad", m=out_features, n=in_features, k=tokens, dtype=dtype
                ),
                outputs=(0,),
            ),
            BackwardStep(
                kernel=Gemm(
                    name=f"{name}.dgrad", m=tokens, n=in_features, k=out_features, dtype=dtype
                ),
                outputs=(1,),
            ),
        ),
    )
    return y
