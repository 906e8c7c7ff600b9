"""gpt-oss (modeling_gpt_oss.py): attention sinks, biased experts, every other layer slides.

sdpa knows no sinks, so transformers runs attention eagerly. Both masks are built, of one size; a
layer is passed its own.
"""

from __future__ import annotations

from simulator.errors import UnsupportedError
from simulator.model.builder import Frame, GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import rotary_buffers
from simulator.model.families.hf.experts import Rows, all_at_once, refuse_conversions
from simulator.model.families.hf.llama import Row, heads_of, register_rows, residual_block
from simulator.model.families.hf.masks import borrow_additive, lend_mask
from simulator.model.families.hf.skeleton import Block, Family, Started
from simulator.model.ops.elementwise import mul
from simulator.model.ops.embedding import embedding
from simulator.model.ops.grouped import grouped_linear
from simulator.model.ops.hf_attention import Eager, Layout, softmax
from simulator.model.ops.hf_rope import borrow_half_tables, half_tables, rotate_halves
from simulator.model.ops.linear import linear
from simulator.model.ops.norm import wide_rms_norm
from simulator.model.ops.plain import position_ids
from simulator.model.ops.pointwise import clamp, scale, shift, sigmoid
from simulator.model.ops.routing import add_in_place, gather, top_k
from simulator.model.ops.views import slice_of

FULL, SLIDING = "mask", "mask.sliding"
GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"


def hf_gpt_oss(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one gpt-oss for one micro-batch.

    Raises:
        UnsupportedError: attention other than eager, or experts one by one.
    """
    if config.attention != "eager":
        raise UnsupportedError(
            f"gpt-oss with attention {config.attention!r} is not supported: sinks need 'eager'"
        )
    if config.experts_implementation != "grouped_mm":
        raise UnsupportedError(
            "gpt-oss with experts one by one is not supported, grouped_mm is",
            key="model.experts_implementation",
        )
    return Family(
        start=_start,
        block=_block(FULL),
        other_blocks={"sliding": _block(SLIDING)},
        kind_of=lambda config, layer: "" if layer % 2 else "sliding",
        withheld={"": frozenset({SLIDING}), "sliding": frozenset({FULL})},
        norm=lambda b, x: wide_rms_norm(b, x, "norm"),
        buffers=rotary_buffers,
    )(config, shape)


def _start(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "embed_tokens")
    positions = position_ids(b, shape.seq)
    masks = (
        *lend_mask(b, config, shape, sliding=False),
        *lend_mask(b, config, shape, name=SLIDING, sliding=True),
    )
    tables = half_tables(b, positions, config.head_dim)
    return Started(hidden=rows, held=(rows, positions, *masks, *tables))


def _block(mask: str) -> Block:
    def write(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
        register_rows(b, config, _attention_weights(config), _moe_weights(config))
        return residual_block(
            b,
            config,
            x,
            lambda normed: _attention(b, config, shape, normed, mask),
            _moe,
            norm=wide_rms_norm,
        )

    return write


def _attention(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int, mask: str) -> int:
    tables = borrow_half_tables(b, shape.seq, config.head_dim)
    with b.frame(x) as frame:
        q = heads_of(b, config, x, "q", config.heads, copied=True)
        k = heads_of(b, config, x, "k", config.kv_heads, copied=True)
        v = heads_of(b, config, x, "v", config.kv_heads, copied=True)
        with b.frame(q, k):
            q, k = rotate_halves(b, q, tables, "q"), rotate_halves(b, k, tables, "k")
        layout = Layout(q=True, k=True)
        eager = Eager(dropout=config.attention_dropout, sinks="self_attn.sinks", layout=layout)
        with b.part("core_attn", unread=b.lent("position_ids")):
            out = eager(b, q, k, v, borrow_additive(b, shape, mask))
        frame.bind(q, k, v, out)
        return linear(b, out, "self_attn.o_proj", config.hidden, bias=True)


def _moe(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    """The router's softmax is over the chosen experts alone."""
    refuse_conversions(b)
    logits = linear(b, x, "mlp.router", config.experts, bias=True)
    values, choices = top_k(b, logits, config.experts_per_token, "router.topk")
    weights = softmax(b, values, "router.weights")
    with b.frame(x, logits, weights, choices):
        return all_at_once(b, config, x, weights, choices, mlp=_gated)


def _gated(b: GraphBuilder, config: ModelConfig, rows: Rows, frame: Frame) -> int:
    """Grouped products, each plus its expert's bias: a row of it for every routed row.

    One local of the caller holds the first bias' rows until the second's are there.
    """
    first = _bias(b, config, rows, GATE_UP, 2 * config.expert_width)
    with b.frame(first):
        both = _biased(b, config, rows, rows.routed, GATE_UP, first)
        product = _clamped_swiglu(b, both, config.expert_width)
        second = _bias(b, config, rows, DOWN, config.hidden)
    frame.bind(second)
    return _biased(b, config, rows, product, DOWN, second)


def _bias(b: GraphBuilder, config: ModelConfig, rows: Rows, name: str, width: int) -> int:
    """bias[e] for every routed row."""
    stored = b.weight(f"{name}_bias", (config.experts, width), routed=config.experts_per_token)
    shape = (*b.of(rows.routed).shape[:-1], width)
    return gather(b, b.parameter(stored), rows.experts, f"{name}_bias.rows", shape)


def _biased(b: GraphBuilder, config: ModelConfig, rows: Rows, x: int, name: str, bias: int) -> int:
    """x · W[e] + bias[e], added in place."""
    width, k = b.of(bias).shape[-1], config.experts_per_token
    out = grouped_linear(b, x, rows.offsets, name, width, routed=k, transposed=True)
    return add_in_place(b, out, bias, f"{name}.biased")


def _clamped_swiglu(b: GraphBuilder, both: int, width: int) -> int:
    """(up + 1) · gate · sigmoid(alpha · gate), gate and up every other column, both clamped."""
    half = (*b.of(both).shape[:-1], width)
    with b.frame(both) as frame:
        gate, up = (slice_of(b, both, f"experts.{name}", half) for name in ("gate", "up"))
        gate = clamp(b, gate, "experts.gate.clamped", bounds=1)
        up = clamp(b, up, "experts.up.clamped", bounds=2)
        swish = sigmoid(b, scale(b, gate, "experts.gate.scaled"), "experts.sigmoid")
        glu = mul(b, gate, swish, "experts.glu")
        frame.bind(gate, up, glu)
        return mul(b, shift(b, up, "experts.up.shifted"), glu, "experts.gated")


def _attention_weights(config: ModelConfig) -> tuple[Row, ...]:
    hidden, queries, keys = config.hidden, config.heads, config.kv_heads
    rows: list[Row] = [("self_attn.sinks", (queries,), 0)]
    for name, heads in (("q", queries), ("k", keys), ("v", keys)):
        width = heads * config.head_dim
        rows.append((f"self_attn.{name}_proj.weight", (width, hidden), 0))
        rows.append((f"self_attn.{name}_proj.bias", (width,), 0))
    out = (hidden, queries * config.head_dim)
    return (*rows, ("self_attn.o_proj.weight", out, 0), ("self_attn.o_proj.bias", out[:1], 0))


def _moe_weights(config: ModelConfig) -> tuple[Row, ...]:
    experts, hidden, width = config.experts, config.hidden, config.expert_width
    k = config.experts_per_token
    return (
        ("mlp.router.weight", (experts, hidden), 0),
        ("mlp.router.bias", (experts,), 0),
        (GATE_UP, (experts, hidden, 2 * width), k),
        (f"{GATE_UP}_bias", (experts, 2 * width), k),
        (DOWN, (experts, width, hidden), k),
        (f"{DOWN}_bias", (experts, hidden), k),
    )
