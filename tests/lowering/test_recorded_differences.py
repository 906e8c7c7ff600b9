"""What a setting costs, by arithmetic, in real PyTorch's recordings and in the simulation alike.

Llama-2 7B on shards of 8 ranks, one sequence of 4096 tokens. Each difference is stated first, as
bytes that follow from the sizes below, and both columns must show exactly that.
"""

from __future__ import annotations

from functools import cache

import pytest

from simulator.memory.ledger import replay
from tests.recorded import peaks_by_phase, program_of, runs

GIB = 2**30
VOCAB, HIDDEN, FFN, LAYERS, SHARDS, TOKENS = 32000, 4096, 11008, 32, 8, 4096
TABLE = VOCAB * HIDDEN
MATRICES = 4 * HIDDEN**2 + 3 * FFN * HIDDEN
"""Weights of a layer's matrix products; its two norms have ``HIDDEN`` each."""

HEAD = TABLE + HIDDEN
PARAMETERS = TABLE + LAYERS * (MATRICES + 2 * HIDDEN) + HEAD
BATCH = 2 * 8 * TOKENS
"""Tokens and labels, int64."""

BASE = "7b_ws8_mb1_full"
SOURCES = ("recorded", "simulated")


@cache
def marks(source: str, name: str) -> dict[str, int]:
    """Live bytes where each mark is met first."""
    run = runs()[name]
    found = run["marks"]
    if source == "simulated":
        found = [(mark.mark, mark.allocated) for mark in replay(program_of(run["config"])).marks]
    first: dict[str, int] = {}
    for mark, size in found:
        first.setdefault(mark, size)
    return first


@cache
def peak(source: str, name: str) -> int:
    """The run's highest peak."""
    run = runs()[name]
    if source == "recorded":
        return max(found["total"] for found in peaks_by_phase(run).values())
    phases = replay(program_of(run["config"]), detail=False).phases
    return max(found.allocated for found in phases)


def test_the_sizes_are_those_of_the_published_model() -> None:
    assert PARAMETERS == 6_738_415_616


@pytest.mark.parametrize("source", SOURCES)
def test_a_root_that_keeps_embedding_and_head_costs_more(source: str) -> None:
    """The embedding stays gathered, and the root reduces both tables at once, in fp32."""
    root, titan = marks(source, "7b_ws8_blockroot_full"), marks(source, BASE)
    assert root["fwd_done"] - titan["fwd_done"] == 2 * TABLE
    last = root["post_bwd.end:root"] - titan["post_bwd.end:tok_embeddings"]
    assert last == 4 * HEAD
    assert peak(source, BASE) / GIB == pytest.approx(14.71, abs=0.005)
    assert peak(source, "7b_ws8_blockroot_full") / GIB == pytest.approx(15.38, abs=0.005)


@pytest.mark.parametrize("source", SOURCES)
def test_replicas_that_reduce_in_bf16_cost_more_than_in_fp32(source: str) -> None:
    """Every unit's bf16 sum stays until backward ends, beside the fp32 gradient it is cast to."""
    fp32, bf16 = marks(source, "7b_hsdp8x8_full"), marks(source, "7b_hsdp8x8_full_reducebf16")
    kept, smaller_input = 2 * PARAMETERS // SHARDS, 2 * TABLE
    end = "post_bwd.end:tok_embeddings"
    assert bf16[end] - fp32[end] == kept - smaller_input > 0
    assert bf16["bwd_done"] == fp32["bwd_done"]
    assert peak(source, "7b_hsdp8x8_full") / GIB == pytest.approx(14.71, abs=0.005)
    assert peak(source, "7b_hsdp8x8_full_reducebf16") / GIB == pytest.approx(15.78, abs=0.005)


@pytest.mark.parametrize("source", SOURCES)
def test_three_reshard_policies_in_order(source: str) -> None:
    """After forward all but the head is dropped, or a quarter of it stays, or the whole."""
    names = [BASE, f"{BASE}_reshard4", f"{BASE}_noreshard"]
    dropped, quarter, whole = (marks(source, name)["fwd_done"] for name in names)
    kept = 2 * (PARAMETERS - HEAD)
    assert (quarter - dropped, whole - dropped) == (kept // 4, kept)
    stated = (14.71, 15.77, 24.49)
    found = [peak(source, name) / GIB for name in names]
    assert found == sorted(found) == [pytest.approx(size, abs=0.005) for size in stated]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("7b_ws8_ga4_nosync", 4 * PARAMETERS),
        ("7b_ws8_ga4_nosync_reducebf16", 2 * PARAMETERS),
        ("7b_ws8_ga4_sync", 4 * PARAMETERS // SHARDS),
    ],
)
def test_gradients_that_wait_for_their_reduction(source: str, name: str, kept: int) -> None:
    """Without sync a rank keeps every gradient whole, in the reduction's dtype."""
    found = marks(source, name)
    assert found["bwd_done"] - found["start"] == kept + BATCH


@pytest.mark.parametrize("source", SOURCES)
def test_autocast_without_recompute_keeps_an_unsharded_copy_of_the_weights(source: str) -> None:
    """Each layer's cast matrices wait for its backward; the residual stream is fp32 besides.

    Of the latter, 10 bytes a token and hidden unit more than in bf16: the layer's input and its
    middle (2 each), and a copy of a norm's output for each product that reads it (3 + 2 for 1 + 1).
    """
    layer = ("post_fwd.end:layers.1", "post_fwd.end:layers.2")
    autocast, mixed = marks(source, "7b_ws8_mb1_none_autocast"), marks(source, "7b_ws8_mb1_none")
    grown = [found[layer[1]] - found[layer[0]] for found in (autocast, mixed)]
    assert grown[0] - grown[1] == 2 * MATRICES + 10 * TOKENS * HIDDEN
