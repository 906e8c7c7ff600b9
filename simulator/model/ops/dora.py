"""DoRA (arXiv:2402.09353), as peft writes it: magnitude and direction of the adapted weight.

Source: peft 0.21 tuners/lora/dora.py, ``DoraLinearLayer.forward``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from simulator.dtypes import DType
from simulator.fine_tuning import Adapters
from simulator.kernels import Elementwise, Gemm
from simulator.model.builder import GraphBuilder
from simulator.model.graph import Weight
from simulator.model.ops.elementwise import add
from simulator.model.ops.mm import cast_weight, mm
from simulator.model.ops.plain import plain
from simulator.model.ops.pointwise import scale
from simulator.model.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Adapters and the linear that they stand beside.

    ``delta``: x -> BAx; ``again``: x -> Wx; ``bias``: the linear has one.
    """

    name: str
    base: Weight
    down: Weight
    up: Weight
    bias: bool
    delta: Callable[[int], int]
    again: Callable[[int], int]


def with_magnitude(b: GraphBuilder, x: int, y: int, adapters: Adapters, beside: Beside) -> int:
    """(m/‖V‖ - 1) · Wx + m/‖V‖ · BAx · s, where V is W + BA · s and its norm takes no gradient.

    ``y`` is Wx of the x that is not dropped. Locals live until the call returns.
    """
    name, base, dtype = beside.name, beside.base, b.of(x).dtype
    with b.frame() as frame:
        whole = _whole(b, beside, dtype)
        narrow = (base.dtype or b.dtype) is not dtype
        weight = cast_weight(b, f"{name}.weight", base, dtype) if narrow else None
        norm = _norm(b, beside, whole[-1], weight, dtype)
        factor = _by_norm(b, beside, norm, adapters, dtype)
        delta = beside.delta(x)
        source = _base(b, x, y, adapters, beside, weight)
        less = _less(b, factor, f"{name}.dora.less_one")
        kept = _times_row(b, less, source, f"{name}.dora.base")
        moved = _times_row(b, factor, delta, f"{name}.dora.delta")
        moved = scale(b, moved, f"{name}.lora.scaled")
        frame.bind(*(() if source == y else (source,)), *whole)
        frame.bind(*(() if weight is None else (weight,)), norm, factor, delta)
        return add(b, kept, moved, f"{name}.dora.sum")


def _base(
    b: GraphBuilder, x: int, y: int, adapters: Adapters, beside: Beside, weight: int | None
) -> int:
    """Wx without the bias; where x was dropped, of what is left of it."""
    name = f"{beside.name}.dora.base"
    if not adapters.dropout:
        return _less(b, y, f"{name}.unbiased") if beside.bias else y
    if weight is None:
        return beside.again(x)
    return mm(b, x, weight, name, b.of(y).shape, saves=(x, weight))


def _whole(b: GraphBuilder, beside: Beside, dtype: DType) -> tuple[int, ...]:
    """BA, the adapters' product with an identity; its nodes hold on to their arguments."""
    name, (rank, features), outs = beside.name, beside.down.shape, beside.up.shape[0]
    eye = plain(b, f"{name}.dora.eye", (features, features), dtype)
    middle = b.value(f"{name}.dora.middle", (features, rank), dtype)
    kernel = Gemm(name=f"{name}.dora.middle", m=features, n=rank, k=features, dtype=dtype)
    b.op(f"{name}.dora.middle", "mm", (eye,), (middle,), kernel)
    whole = b.value(f"{name}.dora.whole", (features, outs), dtype)
    kernel = Gemm(name=f"{name}.dora.whole", m=features, n=outs, k=rank, dtype=dtype)
    b.op(f"{name}.dora.whole", "mm", (middle,), (whole,), kernel)
    return middle, eye, whole


def _norm(b: GraphBuilder, beside: Beside, adapted: int, weight: int | None, dtype: DType) -> int:
    """‖W + BA · s‖, one a row of W."""
    name, base = beside.name, beside.base
    scaled = plain(b, f"{name}.dora.scaled", base.shape, dtype, (adapted,))
    inputs = (scaled,) if weight is None else (weight, scaled)
    total = plain(b, f"{name}.dora.weight", base.shape, dtype, inputs)
    return plain(b, f"{name}.dora.norm", base.shape[:1], dtype, (total,))


def _by_norm(b: GraphBuilder, beside: Beside, norm: int, adapters: Adapters, dtype: DType) -> int:
    """m/‖V‖: keeps the norm."""
    name = beside.name
    magnitude = b.weight(
        f"{name}.lora_magnitude_vector.weight",
        beside.base.shape[:1],
        trainable=True,
        dtype=adapters.dtype,
    )
    out = b.value(f"{name}.dora.factor", magnitude.shape, dtype)
    size = b.bytes(out)
    rule = Rule(f"{name}.dora.factor")
    rule.make("grad", magnitude.shape, dtype, weight=magnitude.name, read=2 * size, reads=(norm,))
    kernel = Elementwise(name=f"{name}.dora.factor", kind="copy", read=2 * size, written=size)
    b.op(f"{name}.dora.factor", "div", (norm,), (out,), kernel, saves=(norm,), rule=rule)
    return out


def _less(b: GraphBuilder, x: int, name: str) -> int:
    """x less a number, or a row that takes no gradient: hands the gradient on."""
    out = b.value(name, b.of(x).shape, b.of(x).dtype)
    size = b.bytes(x)
    kernel = Elementwise(name=name, kind="copy", read=size, written=size)
    b.op(name, "sub", (x,), (out,), kernel, passes=(x,))
    return out


def _times_row(b: GraphBuilder, row: int, x: int, name: str) -> int:
    """One factor a column times x, in the row's dtype: keeps both.

    MulBackward0 makes x's gradient first, then the row's at full size, which is summed.
    """
    known, dtype = b.of(x), b.of(row).dtype
    out = b.value(name, known.shape, dtype)
    size = prod(known.shape) * dtype.itemsize
    rule = Rule(name, "activation")
    rule.promoted("grad_other", dtype, value=x, known=known, read=size, reads=(row,))
    full = rule.make("product", known.shape, dtype, read=2 * size, toward=row)
    rule.make("sum", b.of(row).shape, dtype, value=row, read=size, reads=(x,))
    rule.free(full)
    rule.settle()
    kernel = Elementwise(name=name, kind="activation", read=b.bytes(x), written=size)
    b.op(name, "mul", (row, x), (out,), kernel, saves=(row, x), rule=rule)
    return out
