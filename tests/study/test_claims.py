"""Each textbook claim against its simulation, by the closed form of what differs."""

from __future__ import annotations

from functools import cache

import pytest

from simulator.run import simulate
from simulator.study.claims import GB, HEADS, HIDDEN, LAYERS, SEQ, WORKED, Claim, claims

U = SEQ * HIDDEN
F = 11008 / 4096


@cache
def found(name: str) -> Claim:
    (claim,) = (each for each in claims_() if each.name == name)
    return claim


@cache
def claims_() -> tuple[Claim, ...]:
    return claims()


def test_activations_are_those_of_swiglu() -> None:
    """16 + 8 f and not 34; a log-sum-exp a head and two rstd a row, 4 B each; flash's seeds."""
    layer = (16 + 8 * F) * U + 4 * SEQ * HEADS + 2 * 4 * SEQ
    one = found("activations of a sequence")
    assert float(one.claimed) == pytest.approx(LAYERS * 34 * U / GB, abs=0.05)
    assert one.simulated == pytest.approx(LAYERS * layer / GB, rel=1e-4)
    eight = found("activations of eight")
    assert float(eight.claimed) == pytest.approx(8 * LAYERS * 34 * U / GB, abs=0.5)
    assert eight.simulated == pytest.approx(8 * one.simulated, rel=1e-4)


def test_attention_scores_are_kept_in_two_dtypes() -> None:
    """6 a s² beside 5: fp32 and bf16 probabilities; flash's log-sum-exp is not kept then."""
    scores = found("attention scores")
    squares = HEADS * SEQ * SEQ
    assert float(scores.claimed) == pytest.approx(5 * squares / GB, abs=0.05)
    assert scores.simulated == pytest.approx((6 * squares - 4 * SEQ * HEADS) / GB, rel=1e-3)


def test_a_checkpointed_layer_keeps_its_input() -> None:
    kept = found("a checkpointed layer")
    assert kept.simulated * 1e6 == 2 * U
    assert float(kept.claimed) == pytest.approx(kept.simulated, abs=0.5)


def test_full_recompute_leaves_the_last_product_and_the_head() -> None:
    """A block's products but w2, and attention (4 s h a token), over three passes of all."""
    ffn, vocab = 11008, 32000
    block = 2 * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * ffn) + 4 * SEQ * HIDDEN
    again = block - 2 * HIDDEN * ffn
    whole = 3 * (LAYERS * block + 2 * HIDDEN * vocab)
    full = found("full recompute").simulated
    assert full == pytest.approx(100 * LAYERS * again / whole, rel=1e-3)
    assert 20 < full < 33


def test_selective_recompute_is_between_its_bounds() -> None:
    assert 2 < found("selective recompute").simulated < 5


def test_logits_are_there_three_times() -> None:
    """12 B a logit; by chunks an eighth of it, and three gradients of the head, 2 B a weight."""
    vocab = 128256
    whole, chunks = found("logits of a sequence"), found("logits by chunks")
    logits, head = SEQ * vocab, vocab * HIDDEN
    assert float(whole.claimed) == pytest.approx(4 * logits / GB, abs=0.05)
    assert whole.simulated == pytest.approx(12 * logits / GB, rel=0.03)
    assert chunks.simulated == pytest.approx(3 * 2 * head / GB, rel=0.05)


def test_8_bit_states_save_all_but_their_scales() -> None:
    """8 B become 2 and two fp32 scales for 256 elements; norms stay in fp32."""
    assert found("8-bit states").simulated == pytest.approx(6 - 8 / 256, rel=1e-3)


def test_the_worked_case_is_within_what_was_said() -> None:
    low, high = map(float, found("the worked case").claimed.split("–"))
    assert low < found("the worked case").simulated < high
    states = 16 * simulate(WORKED, memory_only=True).trace.header.parameters / 8
    assert found("the worked case").simulated > states / GB


def test_the_verdicts() -> None:
    qlora, full = found("QLoRA of 70B"), found("full fine-tuning of 8B")
    assert (qlora.claimed, full.claimed) == ("yes", "yes")
    assert qlora.simulated > 68_976_648_192 * (0.5 + 0.127 / 8) / GB
    assert full.simulated == pytest.approx(16 * 8_030_261_248 / GB, rel=0.01)
