"""Routed experts as transformers runs them, dropless: all in one launch, or one by one.

Kept, in bytes a routed row: 8 F of the gated MLP (gate and up, silu, product) and 4 h, what goes in
and what comes out; one by one 2 h more, what is added up. Rows are weighed in the wider dtype of
output and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.model.builder import Frame, GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.families.hf.llama import Row
from simulator.model.ops.elementwise import cast, mul, silu
from simulator.model.ops.grouped import balanced, grouped_linear
from simulator.model.ops.mm import mm
from simulator.model.ops.norm_parts import scale_by
from simulator.model.ops.plain import plain
from simulator.model.ops.routing import add_rows_at, gather, inverse, sort, sum_choices
from simulator.model.ops.views import select, split


def refuse_conversions(b: GraphBuilder) -> None:
    """What turns linear modules into others knows neither routers nor experts, which are none.

    Raises:
        UnsupportedError: autocast, float8 linears, a 4-bit base, or adapters beside all linears.
    """
    tuning = b.tuning
    for what, key, asked in (
        ("autocast", "precision", b.autocast is not None),
        ("float8 linears", "precision.fp8", bool(b.float8)),
        ("a 4-bit base", "fine_tuning.base", tuning is not None and tuning.base is not None),
        (
            "adapters beside every linear",
            "fine_tuning.targets",
            b.adapters_of("mlp.experts") is not None,
        ),
    ):
        if asked:
            raise UnsupportedError(
                f"routed experts with {what} are not supported", key=f"training.{key}"
            )


def routed_experts(b: GraphBuilder, config: ModelConfig, x: int, weights: int, choices: int) -> int:
    """x[b, s, h] through the experts that ``choices``[b, s, k] name, weighed and summed."""
    run = one_by_one if config.experts_implementation == "eager" else all_at_once
    return run(b, config, x, weights, choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The routed rows, sorted by expert: themselves, whose they are, and where each expert ends."""

    routed: int
    experts: int
    offsets: int


Inner = Callable[[GraphBuilder, ModelConfig, Rows, Frame], int]
"""The experts' own MLP over sorted rows; the frame holds what their caller's locals do."""


def all_at_once(
    b: GraphBuilder,
    config: ModelConfig,
    x: int,
    weights: int,
    choices: int,
    mlp: Inner | None = None,
) -> int:
    """``grouped_mm_experts_forward``: rows are sorted by expert and brought back afterwards.

    ``mlp``: None is the gated one.
    """
    count = prod(b.of(choices).shape)
    with b.frame() as frame:
        experts, order = sort(b, choices, "experts.sort")
        tokens = plain(b, "experts.tokens", (1, count, 1), DType.INT64, (order,))
        routed = gather(b, x, tokens, "experts.in", (1, count, config.hidden))
        shares = gather(b, weights, order, "experts.shares", (1, count, 1))
        offsets = _offsets(b, config, experts)
        frame.bind(experts, order, routed, shares, *offsets)
        rows = Rows(routed=routed, experts=experts, offsets=offsets[-1])
        mapped = (mlp or _gated)(b, config, rows, frame)
        weighed = scale_by(b, mapped, shares, "experts.weighed")
        back = inverse(b, order, "experts.inverse")
        restored = gather(b, weighed, back, "experts.restored", b.of(weighed).shape)
        summed = sum_choices(b, restored, b.of(x).shape, "experts.sum")
        frame.bind(back, restored)
        if b.of(summed).dtype is b.of(x).dtype:
            return summed
        frame.bind(summed)
        return cast(b, summed, b.of(x).dtype, "experts.out")


def _offsets(b: GraphBuilder, config: ModelConfig, experts: int) -> tuple[int, ...]:
    """Where each expert's rows end, and what that is counted from: all int32."""
    narrow = plain(b, "experts.int", b.of(experts).shape, DType.INT32, (experts,))
    counts = plain(b, "experts.counts", (config.experts,), DType.INT32, (narrow,))
    ends = plain(b, "experts.offsets", (config.experts,), DType.INT32, (counts,))
    return narrow, counts, ends


def _gated(b: GraphBuilder, config: ModelConfig, rows: Rows, _: Frame) -> int:
    """down(silu(gate) · up), gate and up the halves of one product."""
    width, k = config.expert_width, config.experts_per_token
    x, offsets = rows.routed, rows.offsets
    both = grouped_linear(b, x, offsets, "mlp.experts.gate_up_proj", 2 * width, routed=k)
    half = (*b.of(x).shape[:-1], width)
    with b.frame(both):
        gate, up = split(b, both, "experts.gate_up", {"experts.gate": half, "experts.up": half})
        product = mul(b, silu(b, gate, "experts.silu"), up, "experts.gated")
    return grouped_linear(b, product, offsets, "mlp.experts.down_proj", config.hidden, routed=k)


def expert_weights(config: ModelConfig) -> tuple[Row, ...]:
    """The experts' weights in torch's order: gate and up in one, down."""
    experts, hidden, width = config.experts, config.hidden, config.expert_width
    return (
        ("mlp.experts.gate_up_proj", (experts, 2 * width, hidden), config.experts_per_token),
        ("mlp.experts.down_proj", (experts, hidden, width), config.experts_per_token),
    )


def one_by_one(b: GraphBuilder, config: ModelConfig, x: int, weights: int, choices: int) -> int:
    """The experts' own ``forward``: a loop over the experts that were hit.

    Each expert's gradient is written into zeros of the whole weight's size, and those are summed.
    """
    matrices = tuple(
        b.parameter(b.weight(name, shape, routed=routed))
        for name, shape, routed in expert_weights(config)
    )
    rows = prod(b.of(choices).shape)
    parts = [n for count, n in balanced(rows, config.experts) for _ in range(count)]
    with b.frame() as frame:
        out = plain(b, "experts.zeros", b.of(x).shape, b.of(x).dtype)
        masks = _masks(b, config, choices, len(parts))
        frame.bind(*masks)
        loop = _Loop(b, config, matrices, x, weights, masks[0])
        for number, part in enumerate(parts):
            out = loop.expert(number, part, out)
        frame.bind(*loop.last)
        return out


def _masks(b: GraphBuilder, config: ModelConfig, choices: int, hit: int) -> tuple[int, int]:
    """Who is sent where, one-hot int64, and the experts that anyone is sent to."""
    classes = config.experts + 1
    int64 = DType.INT64
    mask = plain(b, "experts.mask", (*b.of(choices).shape, classes), int64, (choices,))
    with b.frame():
        counts = plain(b, "experts.counts", (classes,), int64, (mask,))
        seen = plain(b, "experts.seen", (classes,), DType.BOOL, (counts,))
        return mask, plain(b, "experts.hit", (hit, 1), int64, (seen,))


class _Loop:
    """One expert after the other; ``last``: what the loop's variable still holds."""

    def __init__(
        self,
        b: GraphBuilder,
        config: ModelConfig,
        matrices: tuple[int, ...],
        x: int,
        weights: int,
        mask: int,
    ) -> None:
        self.b, self.config, self.matrices = b, config, matrices
        self.x, self.weights, self.mask = x, weights, mask
        self.last: tuple[int, ...] = ()

    def expert(self, number: int, rows: int, out: int) -> int:
        """``out`` plus what one expert makes of its rows."""
        b, name = self.b, f"experts.{number}"
        plain(b, f"{name}.is_padding", (1,), DType.BOOL)
        places = plain(b, f"{name}.places", (rows, 2), DType.INT64, (self.mask,))
        mapped = self._mapped(name, rows, places)
        shares = gather(b, self.weights, places, f"{name}.shares", (1, rows, 1))
        weighed = scale_by(b, mapped, shares, f"{name}.weighed")
        self.last = (weighed,)
        return add_rows_at(b, out, cast(b, weighed, b.of(out).dtype, f"{name}.out"), places, name)

    def _mapped(self, name: str, rows: int, places: int) -> int:
        """The gated MLP; the loop's variable lets go of the last expert's rows."""
        b, config, width = self.b, self.config, self.config.expert_width
        gate_up, down = self.matrices
        state = gather(b, self.x, places, f"{name}.in", (1, rows, config.hidden))
        part = select(b, gate_up, f"{name}.gate_up_proj")
        both = mm(b, state, part, f"{name}.gate_up", (1, rows, 2 * width), saves=(state,))
        half = (1, rows, width)
        gate, up = split(b, both, f"{name}.chunk", {f"{name}.gate": half, f"{name}.up": half})
        with b.frame(*self.last):
            product = mul(b, silu(b, gate, f"{name}.silu"), up, f"{name}.gated")
        part = select(b, down, f"{name}.down_proj")
        return mm(b, product, part, f"{name}.down", (1, rows, config.hidden), saves=(product,))
