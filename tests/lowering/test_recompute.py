"""What module-wise checkpointing keeps and computes again, by published closed forms.

u = tokens · hidden, f = ffn / hidden, a heads, s tokens a sequence.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.lowering.lower import decoder_of
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.units import units_of
from simulator.model.config import ModelConfig
from simulator.model.decoder import Shape
from simulator.model.families import FAMILIES
from simulator.model.graph import Graph
from simulator.model.presets import PRESETS
from tests.strategies import make_plan

BATCH, SEQ = 2, 256


def block(name: str, **changes: object) -> tuple[ModelConfig, Graph]:
    config = replace(PRESETS[name], **changes)
    shape = Shape(batch=BATCH, seq=SEQ, dtype=DType.BF16)
    return config, FAMILIES[config.family](config, shape).blocks[0]


def kept(graph: Graph, *modules: str) -> int:
    found = plan_recompute(graph, "megatron-selective", modules=modules)
    return sum(graph.values[value].bytes for value in found.kept)


def test_selective_recompute_of_korthikanti() -> None:
    """34·s·b·h + 5·a·s²·b becomes 34·s·b·h (arXiv:2205.05198, table 2), and norms' statistics."""
    every = dict.fromkeys(("dropout", "embedding_dropout", "attention_dropout"), 0.1)
    config, graph = block("gpt2", attention="eager", activation="gelu", **every)
    unit = BATCH * SEQ * config.hidden
    statistics = 4 * 4 * BATCH * SEQ
    scores = 5 * config.heads * SEQ**2 * BATCH
    assert graph.saved_bytes() == 34 * unit + scores + statistics
    assert kept(graph, "core_attn") == 34 * unit + statistics


@pytest.mark.parametrize(
    ("modules", "units", "rows"),
    [
        (("core_attn",), lambda f, g: 12 + 8 * f + 4 * g, 2),
        (("mlp",), lambda f, g: 16, 2),
        (("layernorm",), lambda f, g: 16 + 8 * f, 0),
        (("core_attn", "mlp", "layernorm"), lambda f, g: 12 + 4 * g, 0),
    ],
)
def test_parts_of_a_llama_block(modules: tuple[str, ...], units: object, rows: int) -> None:
    """16 + 8f: without core attention k and v stay unexpanded; without the MLP its 8f go."""
    config, graph = block("llama-3.1-8b")
    unit = BATCH * SEQ * config.hidden
    share, wide = config.kv_heads / config.heads, config.ffn / config.hidden
    flash = 0 if "core_attn" in modules else 4 * config.heads * SEQ * BATCH + 24
    assert callable(units)
    expected = units(wide, share) * unit + rows * 4 * BATCH * SEQ + flash
    assert kept(graph, *modules) == expected


def test_hfu_counts_core_attention_again() -> None:
    config = PRESETS["llama-3.1-8b"]
    plan = make_plan(seq_len=SEQ, activation_checkpointing="megatron-selective")
    units = units_of(decoder_of(config, plan), plan.training)
    attention = 4 * config.heads * config.head_dim * SEQ**2
    assert sum(unit.kind.recomputed_flops for unit in units) == config.layers * attention


def test_a_part_that_no_block_has_is_refused() -> None:
    modules = ("mlps",)
    plan = make_plan(activation_checkpointing="megatron-selective", checkpoint_modules=modules)
    with pytest.raises(UnsupportedError, match="did you mean 'mlp'"):
        units_of(decoder_of(PRESETS["llama-2-7b"], plan), plan.training)
