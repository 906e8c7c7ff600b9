"""What ``torch.autocast`` does to matrix products: casts of inputs and weights to a 16-bit dtype.

Source: ATen/autocast_mode.cpp. A trained weight's cast is kept in autocast's cache until the
context exits, and by every node that needs it for the input's gradient; an input's cast, and a
frozen weight's, by the node alone.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder
from simulator.model.graph import Weight
from simulator.model.ops.elementwise import cast
from simulator.model.ops.mm import mm
from simulator.model.rule import Rule


def autocast_mm(
    b: GraphBuilder, x: int, name: str, weight: Weight, shape: tuple[int, ...], to: DType
) -> int:
    """x · Wᵀ with both cast to ``to``; y has ``shape``. The weight is cast before the input."""
    narrow = _cast_weight(b, name, weight, to)
    source = x if b.of(x).dtype is to else cast(b, x, to, f"{name}.input")
    return mm(b, source, narrow, name, shape, saves=(source, narrow))


def _cast_weight(b: GraphBuilder, name: str, weight: Weight, to: DType) -> int:
    """The weight in ``to``; its gradient is cast back to the weight's dtype."""
    out = b.value(f"{name}.weight.cast", weight.shape, to)
    wide, narrow = weight.numel * b.dtype.itemsize, weight.numel * to.itemsize
    rule = Rule(f"{name}.weight")
    rule.make("grad", weight.shape, b.dtype, weight=weight.name, read=narrow)
    kernel = Elementwise(name=f"{name}.weight.cast", kind="copy", read=wide, written=narrow)
    b.op(f"{name}.weight.cast", "cast", (), (out,), kernel, rule=rule)
    if weight.trainable:
        b.hold_until_loss(out)
    return out
