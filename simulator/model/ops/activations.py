"""Activations by the names of Hugging Face's config.json (transformers' ``ACT2FN``).

Some are one kernel of PyTorch's and keep one tensor; those that are written in Python keep what
each of their ops does, several tensors of the MLP's width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.model.builder import GraphBuilder
from simulator.model.ops.elementwise import add, mul, silu
from simulator.model.ops.pointwise import gelu, power, relu, scale, shift, sigmoid, tanh


def gelu_new(b: GraphBuilder, x: int, name: str) -> int:
    """0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))), op by op (``NewGELUActivation``)."""
    with b.frame(x):
        half = scale(b, x, f"{name}.half")
        cube = scale(b, power(b, x, f"{name}.cube"), f"{name}.cube.scaled")
        inner = scale(b, add(b, x, cube, f"{name}.inner"), f"{name}.inner.scaled")
        return mul(b, half, shift(b, tanh(b, inner, f"{name}.tanh"), f"{name}.plus_one"), name)


def gelu_fast(b: GraphBuilder, x: int, name: str) -> int:
    """0.5 · x · (1 + tanh(x · 0.798 · (1 + 0.044715 · x · x))), op by op (``FastGELU``)."""
    with b.frame(x):
        half = scale(b, x, f"{name}.half")
        outer = scale(b, x, f"{name}.outer")
        square = mul(b, scale(b, x, f"{name}.scaled"), x, f"{name}.square")
        inner = mul(b, outer, shift(b, square, f"{name}.square.plus_one"), f"{name}.inner")
        return mul(b, half, shift(b, tanh(b, inner, f"{name}.tanh"), f"{name}.plus_one"), name)


def quick_gelu(b: GraphBuilder, x: int, name: str) -> int:
    """x · sigmoid(1.702 · x), op by op (``QuickGELUActivation``)."""
    with b.frame(x):
        return mul(b, x, sigmoid(b, scale(b, x, f"{name}.scaled"), f"{name}.sigmoid"), name)


ACTIVATIONS: Mapping[str, Callable[[GraphBuilder, int, str], int]] = {
    "silu": silu,
    "swish": silu,
    "relu": relu,
    "gelu": gelu,
    "gelu_pytorch_tanh": gelu,
    "gelu_new": gelu_new,
    "gelu_fast": gelu_fast,
    "quick_gelu": quick_gelu,
}
"""By name."""


def activate(b: GraphBuilder, x: int, name: str) -> int:
    """The activation of that name."""
    return ACTIVATIONS[name](b, x, name)
