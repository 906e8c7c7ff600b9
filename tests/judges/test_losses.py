"""What every loss must keep to, and what each of them costs.

Bytes a token and vocabulary entry, above the normed state, the head's weight and the labels: live
at the forward's peak, after it, and at the backward's peak, as real PyTorch 2.13 allocated them on
fake tensors for 4,096 tokens, a hidden size of 4,096 and one sequence. Gradients of the head's
weight count: 2 a tensor there, since tokens = hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import pytest

from simulator.dtypes import DType
from simulator.errors import UnknownNameError, UnsupportedError
from simulator.kernels import Gemm
from simulator.lowering.autograd import write_backward, write_forward
from simulator.lowering.calls import Gradient
from simulator.lowering.lower import decoder_of, lower
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.writer import BlockWriter
from simulator.memory.ledger import replay
from simulator.model.builder import GraphBuilder
from simulator.model.decoder import Shape
from simulator.model.families import FAMILIES
from simulator.model.graph import GradTensor, Graph
from simulator.model.loss_choice import LossChoice
from simulator.model.losses import LOSSES, Head, write_loss
from simulator.model.losses.fused_linear import chunk_rows
from simulator.model.ops.linear import linear
from simulator.model.ops.loss import cross_entropy
from simulator.model.presets import PRESETS
from simulator.plan.plan import Fsdp
from simulator.program.instructions import Alloc, Free
from simulator.program.verify import verify
from tests.strategies import BF16_REDUCE, make_plan

CHUNKED = ("chunked", "chunked-head")


@dataclass(frozen=True)
class Cost:
    """Unrounded bytes."""

    forward: int
    after: int
    backward: int


def projected(shape: Shape, hidden: int, vocab: int) -> Graph:
    """The head's product, whose output the loss takes."""
    b = GraphBuilder("head", shape.dtype)
    x = b.value("normed", (shape.batch, shape.seq, hidden))
    return b.build(input=x, output=linear(b, x, "output", vocab))


def leave(made: GradTensor, slot: int) -> None:
    """A weight's gradient stays."""


def cost(graphs: list[Graph]) -> Cost:
    """Run forward and backward of graphs one after the other; the last one is the loss'."""
    w = BlockWriter("loss")
    kept: list[dict[int, int]] = []
    out = w.shared("x", "x")
    for number, graph in enumerate(graphs):
        assert graph.input is not None
        policy = plan_recompute(graph, "none")
        slots = {graph.input: out}
        held = frozenset(() if graph.until_next is None else (graph.until_next,))
        write_forward(w, graph, policy, slots, range(len(graph.ops)), held)
        if number and graph.input in slots and graph.input not in policy.kept | held:
            w.free(slots.pop(graph.input))
        out = slots[graph.output]
        kept.append({value: slot for value, slot in slots.items() if value in policy.kept})
    middle = len(w.finish().instructions)
    gradient = w.local()
    for graph, slots in zip(reversed(graphs), reversed(kept), strict=True):
        policy = plan_recompute(graph, "none")
        given = write_backward(w, graph, policy, slots, Gradient(gradient, 2), leave, {})
        assert given is not None
        gradient = given
    return _cost(w, middle)


def _cost(w: BlockWriter, middle: int) -> Cost:
    live: dict[int, int] = {}
    totals = [0]
    for number, instruction in enumerate(w.finish().instructions):
        if number == middle:
            after = sum(live.values())
            forward, totals = max(totals), [after]
        if isinstance(instruction, Alloc):
            live[instruction.slot] = instruction.tensor.requested
        elif isinstance(instruction, Free):
            live.pop(instruction.slot, None)
        totals.append(sum(live.values()))
    return Cost(forward, after, max(totals))


def cost_of(
    name: str,
    *,
    hf: bool = False,
    chunks: int = 1,
    batch: int = 1,
    tokens: int = 4096,
    vocab: int = 128256,
    hidden: int = 4096,
    upcasts: bool = False,
    apart: bool = False,
) -> Cost:
    """A loss by name, after the head's product where it does not project."""
    choice = LossChoice(name=name, chunks=chunks, upcasts=upcasts, sums_apart=apart)
    shape = Shape(batch=batch, seq=tokens // batch, dtype=DType.BF16, loss=choice)
    part = write_loss(shape, hidden, Head(name="output", vocab=vocab), hf=hf)
    before = [] if part.projects else [projected(shape, hidden, vocab)]
    return cost([*before, part.graph])


RECORDED: dict[str, tuple[Callable[[], Cost], float, float, float]] = {
    "titan": (lambda: cost_of("eager"), 10, 4, 12),
    "titan, 32,000": (lambda: cost_of("eager", vocab=32000), 10, 4, 12),
    "titan, kept": (lambda: cost_of("eager-kept-logits"), 10, 6, 14),
    "hf, kept": (lambda: cost_of("eager-kept-logits", hf=True), 10.0001, 6.0001, 14),
    "hf": (lambda: cost_of("eager", hf=True), 10.0001, 4.0001, 12),
    "hf before 4.45": (lambda: cost_of("hf-upcast", hf=True), 7.999, 7.999, 15.9971),
    "chunked 8": (lambda: cost_of("chunked", chunks=8), 6.5, 4, 7.516),
    "chunked 16": (lambda: cost_of("chunked", chunks=16), 6.25, 4, 7.758),
    "head 8": (lambda: cost_of("chunked-head", chunks=8), 1.0, 0, 6.0639),
    "head 16": (lambda: cost_of("chunked-head", chunks=16), 0.5, 0, 6.0639),
}
PER = {"titan, 32,000": 4096 * 32000}


@pytest.mark.parametrize("name", RECORDED)
def test_bytes_a_logit_as_recorded(name: str) -> None:
    ask, *recorded = RECORDED[name]
    found = ask()
    unit = PER.get(name, 4096 * 128256)
    assert [found.forward / unit, found.after / unit, found.backward / unit] == pytest.approx(
        recorded, abs=2e-4, rel=1.5e-4
    )


def test_logits_shifted_by_a_copy_but_cast_by_the_loss_are_one_row_short_of_kept_ones() -> None:
    """transformers 4.45's shift drops one row in 4,096: within 0.03 % of what is kept today."""
    found, unit = cost_of("eager-kept-logits", hf=True), 4096 * 128256
    assert [found.forward / unit, found.after / unit, found.backward / unit] == pytest.approx(
        [9.999, 5.999, 13.9971], rel=3e-4
    )


def test_without_a_cast_all_is_in_the_logits_dtype() -> None:
    """2 logits + 2 log-softmax; 2 kept; log-softmax and two gradients of 2 each: 4, 2, 6."""
    shape = Shape(batch=1, seq=4096, dtype=DType.BF16)
    b = GraphBuilder("loss", DType.BF16)
    logits = b.value("logits", (1, 4096, 128256))
    loss = cross_entropy(b, logits)
    found = cost([projected(shape, 4096, 128256), b.build(input=logits, output=loss)])
    unit = 4096 * 128256
    assert [found.forward / unit, found.after / unit, found.backward / unit] == pytest.approx(
        [4, 2, 6], abs=1e-4
    )


def test_liger_holds_two_gradients_and_one_chunk_of_logits() -> None:
    """Recorded of a stand-in: 4.1264 forward, 2.0639 after and in backward, 32 chunks.

    The stand-in makes each chunk's weight gradient apart, 2.0 here; liger-kernel adds it in place.
    """
    unit = 4096 * 128256
    found = cost_of("fused-linear")
    assert found.after / unit == pytest.approx(2.0639, abs=2e-4)
    assert found.backward / unit == pytest.approx(2.0639, abs=2e-4)
    assert found.forward / unit == pytest.approx(4.1264 - 2.0, abs=2e-4)


def test_liger_of_2025_makes_weight_gradients_apart_and_in_fp32() -> None:
    """A product in bf16 (2 V h) and its fp32 copy (4 V h) beside the sum."""
    plain, apart = cost_of("fused-linear"), cost_of("fused-linear", apart=True)
    assert apart.forward - plain.forward == pytest.approx(6 * 128256 * 4096, rel=0.01)
    assert (apart.after, apart.backward) == (plain.after, plain.backward)


def test_a_compiled_loss_keeps_the_logits_and_makes_their_gradient() -> None:
    """2 B a logit, then 4; 8 B a token for each row's maximum and log-sum, 4 + 4 for scalars.

    The head's backward comes after: gradient 2, weight 2 there, input's 0.064.
    """
    unit, found = 4096 * 128256, cost_of("compiled")
    assert found.after == 2 * unit + 8 * 4096 + 8
    assert found.forward == found.after
    assert found.backward / unit == pytest.approx(2 + 2 + 2 * 4096 / 128256, abs=2e-3)


def test_transformers_that_shift_logits_hold_three_copies_beside_the_models_own() -> None:
    """4.46 to 4.48: bf16 2, fp32 4, shifted 4, log-softmax 4; backward as ever: 12."""
    unit = 4096 * 128256
    found = cost_of("hf-shifted-logits", hf=True, batch=4)
    assert [found.forward / unit, found.after / unit, found.backward / unit] == pytest.approx(
        [14, 4, 12], rel=2e-3
    )


def test_a_triton_loss_overwrites_the_shifted_logits() -> None:
    """fp32 4 and shifted 4; the latter stay, become their gradient, and meet the slice's of 4."""
    unit = 4096 * 32000
    found = cost_of("hf-upcast-triton", hf=True, batch=4, vocab=32000)
    assert [found.forward / unit, found.after / unit, found.backward / unit] == pytest.approx(
        [8, 4, 8], rel=2e-3
    )


def test_a_model_that_casts_and_a_loop_that_keeps_cost_four_bytes_a_logit() -> None:
    """torchtitan until mid-2024, against its loss of today; forward holds no bf16 logits."""
    unit = 4096 * 32000
    now = cost_of("eager", vocab=32000)
    then = cost_of("eager-kept-logits", vocab=32000, upcasts=True)
    assert then.backward - now.backward == 4 * unit
    assert now.forward - then.forward == 2 * unit
    assert then == cost_of("hf-upcast", vocab=32000)


@pytest.mark.parametrize("vocab", [32000, 128256, 151936, 256000])
@pytest.mark.parametrize(("tokens", "chunks"), [(512, 8), (1000, 7), (2048, 1)])
def test_chunks_and_vocabularies(vocab: int, tokens: int, chunks: int) -> None:
    """Of one chunk: 8 B a logit in forward; in backward 12 and the sum so far, or three sums."""
    found = cost_of("chunked-head", chunks=chunks, vocab=vocab, tokens=tokens, hidden=64)
    piece, weight = ceil(tokens / chunks) * vocab, 2 * vocab * 64
    assert found.after <= 16 * chunks + 32
    assert found.forward == pytest.approx(8 * piece, rel=0.01)
    least = 12 * piece + (weight if chunks > 1 else 0)
    assert found.backward == pytest.approx(max(least, min(chunks, 3) * weight), rel=0.02)


@pytest.mark.parametrize("vocab", [32000, 256000])
def test_liger_cuts_the_tokens_as_its_source_says(vocab: int) -> None:
    """16,384 tokens, vocabulary 32,000, hidden 4,096: 8 chunks of 2,048."""
    sizes = list(chunk_rows(16384, vocab, 4096))
    assert sum(sizes) == 16384
    assert sizes == {32000: [2048] * 8, 256000: [512] * 32}[vocab]


def skip_if_of_another_style(name: str, style: str) -> None:
    if name == "hf-shifted-logits" and style != "hf":
        pytest.skip("refused: test_transformers_loss_is_refused_elsewhere")


def test_transformers_loss_is_refused_elsewhere() -> None:
    shape = Shape(batch=1, seq=8, dtype=DType.BF16, loss=LossChoice(name="hf-shifted-logits"))
    with pytest.raises(UnsupportedError, match="use eager"):
        FAMILIES["llama"](PRESETS["llama-2-7b"], shape)


STYLES = {"torchtitan": "llama-2-7b", "hf": "qwen2.5-0.5b"}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_the_graphs_are_well_formed(name: str, batch: int, style: str) -> None:
    skip_if_of_another_style(name, style)
    config = PRESETS[STYLES[style]]
    choice = LossChoice(name=name, chunks=4 if name in CHUNKED else 1)
    shape = Shape(batch=batch, seq=22, dtype=DType.BF16, loss=choice)
    model = FAMILIES[config.family](config, shape)
    names = [value.name for value in model.loss.values]
    assert len(set(names)) == len(names)
    known = {model.loss.input}
    for op in model.loss.ops:
        assert known.issuperset((*op.inputs, *op.passes)), op.name
        known.update(op.outputs)
        assert known.issuperset((*op.saves, *op.releases))
    released = [number for op in model.loss.ops for number in op.releases]
    assert len(set(released)) == len(released)
    made = {
        gradient.weight
        for graph in (model.head, model.loss)
        for op in graph.ops
        for gradient in (*op.gradients, *op.gives)
    }
    assert {weight.name for weight in model.head.weights} <= made
    products = sum(
        op.kernel.flops
        for graph in (model.head, model.loss)
        for op in graph.ops
        if isinstance(op.kernel, Gemm)
    )
    forward = 2 * batch * 22 * config.vocab * config.hidden
    assert products == forward * (3 if name == "fused-linear" else 1)


@pytest.mark.parametrize("wrap", ["block", "none", "torchtitan", "parts"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", LOSSES)
def test_it_lowers_under_every_wrap_and_accumulation(name: str, style: str, wrap: str) -> None:
    skip_if_of_another_style(name, style)
    config = replace(PRESETS[STYLES[style]], layers=2)
    if config.tied and wrap in ("torchtitan", "parts"):
        pytest.skip("a tied head cannot be in a unit of its own")
    known = ("layers.*", "norm, output") if wrap == "parts" else wrap
    for sync in (True, False):
        plan = make_plan(
            fsdp=Fsdp(wrap=known, sync_every_micro_batch=sync),
            seq_len=20,
            micro_batch=2,
            grad_accum=3,
            precision=BF16_REDUCE,
            loss=name,
            loss_chunks=4 if name in CHUNKED else 1,
        )
        program = lower(decoder_of(config, plan), plan, steps=3)
        verify(program)
        resident = replay(program, detail=False).resident
        assert resident[0] == resident[1] == resident[2]


def test_chunked_with_a_wrapped_head_is_refused_where_the_model_cannot_cut_its_logits() -> None:
    plan = make_plan(fsdp=Fsdp(wrap="torchtitan"), loss="chunked", loss_chunks=4)
    config = PRESETS["llama-2-7b"]
    with pytest.raises(UnsupportedError, match=r"fsdp\.wrap: block"):
        lower(decoder_of(replace(config, style="hf"), plan), plan)
    assert not decoder_of(config, plan).loss_part.projects


@pytest.mark.parametrize("vocab", [32000, 128256, 151936, 256000])
@pytest.mark.parametrize(("tokens", "chunks"), [(512, 8), (2048, 4)])
def test_logits_cut_by_the_loss(vocab: int, tokens: int, chunks: int) -> None:
    """2 + 4 + 4 / N B a logit forward, 4 kept.

    Backward: 4 and two gradients of a chunk; at its end 2 of the chunks and 2 joined; with the
    head's gradients, 2.
    """
    shape = Shape(batch=1, seq=tokens, dtype=DType.BF16, loss=CUT[chunks])
    part = write_loss(shape, 64, Head(name="output", vocab=vocab), hf=False)
    found, unit = cost([projected(shape, 64, vocab), part.graph]), tokens * vocab
    assert found.after == pytest.approx(4 * unit, rel=1e-3)
    assert found.forward == pytest.approx((6 + 4 / chunks) * unit, rel=1e-3)
    assert found.backward == pytest.approx((4 + 8 / chunks) * unit, rel=1e-3)


CUT = {n: LossChoice(name="chunked", chunks=n, cuts_logits=True) for n in (4, 8)}


@pytest.mark.parametrize("vocab", [32000, 128256, 151936, 256000])
@pytest.mark.parametrize("tokens", [512, 1024])
@pytest.mark.parametrize(
    ("name", "per_logit"),
    [
        ("eager", (10, 4, 12)),
        ("eager-kept-logits", (10, 6, 14)),
        ("hf-upcast", (8, 8, 16)),
        ("compiled", (2, 2, 4)),
    ],
)
def test_bytes_a_logit_of_every_vocabulary(
    name: str, per_logit: tuple[int, int, int], tokens: int, vocab: int
) -> None:
    """The head's own gradients, where hidden is small, come after the peak."""
    found, unit = cost_of(name, tokens=tokens, vocab=vocab, hidden=16), tokens * vocab
    assert [found.forward / unit, found.after / unit, found.backward / unit] == pytest.approx(
        per_logit, rel=2e-3
    )


def test_an_unknown_loss_names_the_nearest() -> None:
    shape = Shape(batch=1, seq=8, dtype=DType.BF16, loss=LossChoice(name="fused-linaer"))
    with pytest.raises(UnknownNameError, match="did you mean 'fused-linear'"):
        FAMILIES["llama"](PRESETS["llama-2-7b"], shape)


def test_capped_logits_and_autocast_are_refused() -> None:
    gemma = PRESETS["gemma-2-9b"]
    shape = Shape(batch=1, seq=8, dtype=DType.BF16, loss=LossChoice(name="chunked", chunks=2))
    with pytest.raises(UnsupportedError, match="capped"):
        FAMILIES["gemma2"](gemma, shape)
    shape = Shape(
        batch=1,
        seq=8,
        dtype=DType.FP32,
        autocast=DType.BF16,
        loss=LossChoice(name="chunked-head", chunks=2),
    )
    with pytest.raises(UnsupportedError, match="autocast"):
        FAMILIES["llama"](PRESETS["llama-2-7b"], shape)
