"""Mixtures of experts: routing, what is kept, what a token meets, and who refuses what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.hardware.catalogue import gpu
from simulator.kernels import Gemm, GroupedGemm
from simulator.model.config import ModelConfig
from simulator.model.count import flops_per_token
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES, parameters_of
from simulator.model.hf_config import from_hf_config
from simulator.model.ops.grouped import balanced
from simulator.model.presets import PRESETS
from simulator.timing.kernels import kernel_seconds

SMALL = from_hf_config(
    {
        "model_type": "mixtral",
        "hidden_size": 256,
        "intermediate_size": 896,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
)
SEED_AND_OFFSET = 2 * 8 + 8
"""What the flash kernel keeps on CUDA and not on the CPU, where these were recorded."""


def decoder(config: ModelConfig, batch: int, seq: int) -> Decoder:
    return FAMILIES[config.family](config, Shape(batch=batch, seq=seq, dtype=DType.BF16))


@given(rows=st.integers(0, 5000), experts=st.integers(1, 300))
def test_routing_is_even_and_drops_none(rows: int, experts: int) -> None:
    parts = balanced(rows, experts)
    assert sum(count * each for count, each in parts) == rows
    sizes = [each for _, each in parts]
    assert all(each > 0 for each in sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert sum(count for count, _ in parts) == min(experts, rows)


@pytest.mark.parametrize(
    ("run", "chosen", "kept"),
    [("grouped_mm", 2, 22_442_016), ("eager", 2, 23_474_176), ("eager", 1, 14_528_512)],
)
def test_bytes_that_real_experts_keep(run: str, chosen: int, kept: int) -> None:
    """Recorded on torch's CPU kernels, routed by a real router: 1024 tokens of a small Mixtral.

    The kept bytes are linear in a routed row, so uneven experts keep as much as even ones.
    """
    config = replace(SMALL, experts_implementation=run, experts_per_token=chosen)
    block = decoder(config, 1, 1024).blocks[0]
    assert block.saved_bytes() == kept + SEED_AND_OFFSET


@pytest.mark.parametrize(("run", "row"), [("grouped_mm", 4), ("eager", 6)])
def test_a_routed_row_keeps_8_ffn_and_4_or_6_hidden(run: str, row: int) -> None:
    """To within the router and the indices: 8 F + 4 h together, 8 F + 6 h one by one."""
    config = replace(PRESETS["mixtral-8x7b"], experts_implementation=run)
    dense = replace(PRESETS["mistral-7b"], window=None)
    tokens = 4096
    routed = decoder(config, 1, tokens).blocks[0].saved_bytes()
    plain = decoder(dense, 1, tokens).blocks[0].saved_bytes()
    mlp = config.experts_per_token * (8 * config.ffn + row * config.hidden)
    assert routed - plain == pytest.approx(tokens * (mlp - 8 * dense.ffn), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("mixtral-8x7b", 46.7e9, 12.9e9),  # arXiv:2401.04088: 47B and 13B
        ("mixtral-8x22b", 140.6e9, 39.2e9),  # mistral.ai: 141B and 39B
        ("qwen3-30b-a3b", 30.5e9, 3.3e9),  # arXiv:2505.09388
        ("qwen3-235b-a22b", 235e9, 22e9),
        ("deepseek-v2-lite", 15.7e9, 2.66e9),  # arXiv:2405.04434: 15.7B and 2.4B, less embedding
        ("deepseek-v2", 236e9, 21.4e9),
        ("gpt-oss-20b", 20.9e9, 3.6e9 + 0.58e9),  # arXiv:2508.10925, less the embedding
        ("gpt-oss-120b", 116.8e9, 5.1e9 + 0.58e9),
        ("deepseek-v3", 671e9, 37.5e9),  # arXiv:2412.19437: 671B and 37B
    ],
)
def test_published_sizes(name: str, total: float, active: float) -> None:
    assert parameters_of(PRESETS[name]) == (
        pytest.approx(total, rel=0.02),
        pytest.approx(active, rel=0.02),
    )


def test_flops_count_the_experts_that_a_token_meets() -> None:
    config = PRESETS["mixtral-8x7b"]
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    block = attention + 8 * 4096 + 2 * 3 * 4096 * 14336 + 2 * 4096
    matmul = 32 * block + 4096 + 32000 * 4096
    expected = 6 * matmul + 12 * 32 * 4096 * 2048
    assert flops_per_token(config, decoder(config, 1, 8), 2048) == expected


def test_products_of_all_experts_take_as_long_as_one_batch_of_them() -> None:
    card = gpu("h100-sxm-80gb")
    one = Gemm(name="up", m=512, n=4096, k=2048, dtype=DType.BF16, batch=8)
    alone = kernel_seconds(one, card)
    grouped = GroupedGemm(name="up", parts=(one,))
    assert kernel_seconds(grouped, card) == pytest.approx(alone)
    more = replace(one, m=513, batch=1)
    both = kernel_seconds(replace(grouped, parts=(one, more)), card)
    assert alone < both < alone + kernel_seconds(more, card)
    assert grouped.flops == one.flops
    assert grouped.bytes == one.bytes


def test_rows_that_the_grouped_kernel_cannot_read_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="multiple of 16 bytes, and 892"):
        decoder(replace(SMALL, ffn=446), 1, 8)
    decoder(replace(SMALL, ffn=446, experts_implementation="eager"), 1, 8)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"_experts_implementation": "batched_mm"}, "'batched_mm' is not supported"),
        ({"output_router_logits": True}, "output_router_logits: True is not supported"),
        ({"router_jitter_noise": 0.1}, r"router_jitter_noise: 0\.1 is not supported"),
    ],
)
def test_settings_of_a_mixture_that_are_refused(changes: dict[str, object], words: str) -> None:
    config = {
        "model_type": "mixtral",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }
    with pytest.raises(UnsupportedError, match=words):
        from_hf_config(config | changes)
