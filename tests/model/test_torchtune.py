"""What torchtune's Llama keeps: bytes of a block over tokens · hidden, from its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.dtypes import DType
from simulator.model.decoder import Shape
from simulator.model.families import FAMILIES
from simulator.model.graph import Graph
from simulator.model.loss_choice import LossChoice
from simulator.model.losses import Head, write_loss
from simulator.model.presets import PRESETS

LLAMA = replace(PRESETS["llama-3.2-3b"], style="torchtune", layers=2)
SHAPE = Shape(batch=2, seq=4096, dtype=DType.BF16)


def block(norm: str) -> Graph:
    return FAMILIES["llama"](replace(LLAMA, rms_norm=norm), SHAPE).blocks[1]


@pytest.mark.parametrize(("norm", "each"), [("narrow", 8), ("composite", 10)])
def test_bytes_that_a_block_keeps(norm: str, each: int) -> None:
    """Two norms, q, k and v of all heads, attention's output, four of the MLP's 8/3 width.

    Beside them 8 B a token and pair of a head's dims for the gathered cache, twice; a row's rsqrt
    and log-sum-exp are 4 B each.
    """
    tokens, hidden = 2 * 4096, 3072
    whole = 2 * each + 6 + 2 + 8 * 8192 / 3072
    small = 2 * 8 * 64 + 2 * 4 + 4 * 24
    kept = block(norm).saved_bytes() / tokens
    assert kept == pytest.approx(whole * hidden + small, abs=0.01)


def test_the_head_is_the_embedding() -> None:
    model = FAMILIES["llama"](LLAMA, SHAPE)
    (head,) = (weight for weight in model.head.weights if weight.tied)
    assert head.name == model.embedding.weights[0].name


def test_a_compiled_chunk_keeps_its_logits_and_no_fp32_copy() -> None:
    """2 B a logit of the chunks; eager ones keep their log-softmax too, 4 B more."""

    def kept(*, compiles: bool) -> int:
        choice = LossChoice(name="chunked", chunks=8, compiles=compiles)
        part = write_loss(
            replace(SHAPE, loss=choice), 3072, Head(name="output", vocab=128256), hf=False
        )
        return part.graph.saved_bytes()

    logits, rows = 2 * 4096 * 128256, 2 * 4096
    inputs = rows * 3072 * 2
    assert kept(compiles=True) == pytest.approx(2 * logits + inputs + 8 * rows, rel=1e-4)
    assert kept(compiles=False) == pytest.approx(4 * logits + inputs, rel=1e-4)
