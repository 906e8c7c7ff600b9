"""What ``torch.autocast`` does to an op's inputs: casts to 16 bits, or to fp32.

Source: ATen/autocast_mode.cpp. Matrix products and attention run in the 16-bit dtype, norms,
softmax and powers in fp32, and what mixes dtypes by PyTorch's own promotion. The casts of one
call are made from its last argument to its first, as the compiler evaluates them. A trained
weight's cast is kept in autocast's cache until the context exits, and by every node that needs it
for the input's gradient; an input's cast, and a frozen weight's, by the node alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.graph import GradTensor, Weight
from simulator.model.ops.elementwise import cast
from simulator.model.ops.mm import cast_weight


def in_16_bits(b: GraphBuilder, x: int, name: str) -> int:
    """``x`` as an op of the lower-precision list reads it."""
    return x if b.autocast is None else cast(b, x, b.autocast, name)


def in_fp32(b: GraphBuilder, x: int, name: str) -> int:
    """``x`` as an op of the fp32 list reads it."""
    return x if b.autocast is None else cast(b, x, DType.FP32, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A parameter as a product reads it: itself, or autocast's copy of it, the value ``cast``."""

    name: str
    weight: Weight
    cast: int | None = None

    @property
    def values(self) -> tuple[int, ...]:
        """What the node keeps of it, besides the parameter."""
        return () if self.cast is None else (self.cast,)

    def gradient(self, dtype: DType, reads: tuple[int, ...]) -> GradTensor:
        """The gradient that the product's node makes of it."""
        return GradTensor(
            name=f"{self.name}.grad" if self.cast is None else f"{self.name}.cast.grad",
            shape=self.weight.shape,
            dtype=dtype,
            value=self.cast,
            weight=self.weight.name if self.cast is None else None,
            reads=reads,
        )


def operand(b: GraphBuilder, name: str, weight: Weight) -> Operand:
    """A parameter; under autocast its copy, whose gradient is cast back to the weight's dtype.

    A parameter that is stored in that dtype is read as it is.
    """
    if b.autocast is None or (weight.dtype or b.dtype) is b.autocast:
        return Operand(name=name, weight=weight)
    out = cast_weight(b, name, weight, b.autocast)
    if weight.trainable:
        b.hold_until_loss(out)
    return Operand(name=name, weight=weight, cast=out)
