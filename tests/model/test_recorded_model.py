"""Parameter counts and what autograd keeps, against what real PyTorch reported.

Parameters: equal. Kept bytes: equal (``saved_bytes`` are unrounded storages). With checkpointing
the recorder reports what is alive after forward: the input plus what the policy cached.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.kernels import Attention, Gemm
from simulator.lowering.recompute import plan_recompute
from simulator.model.count import flops_per_token
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES
from simulator.model.graph import Graph
from simulator.model.presets import PRESETS
from tests.recorded import DATA

RECORDED: dict[str, Any] = json.loads((DATA / "recorded_model.json").read_text())
PRESET = {
    "llama2_7b": "llama-2-7b",
    "llama2_13b": "llama-2-13b",
    "llama2_70b": "llama-2-70b",
    "llama3_8b": "llama-3.1-8b",
    "llama3_70b": "llama-3.1-70b",
    "llama3_405b": "llama-3.1-405b",
}


def decoder(
    name: str, batch: int = 1, seq: int = 4096, *, autocast: bool = False, **changes: Any
) -> Decoder:
    config = replace(PRESETS[PRESET[name]], **changes)
    dtype, to = (DType.FP32, DType.BF16) if autocast else (DType.BF16, None)
    return FAMILIES[config.family](config, Shape(batch=batch, seq=seq, dtype=dtype, autocast=to))


def kept_bytes(graph: Graph, values: frozenset[int]) -> int:
    return sum(prod(graph.values[v].shape) * graph.values[v].dtype.itemsize for v in values)


@pytest.mark.parametrize("name", sorted(RECORDED["parameters"]))
def test_parameter_counts(name: str) -> None:
    recorded = RECORDED["parameters"][name]
    model = decoder(name)
    assert model.parameters == recorded["total"]
    assert model.blocks[0].parameters == recorded["per_layer"]
    ours = sorted(w.shape for g in model.graphs for w in g.weights)
    assert ours == sorted(tuple(shape) for shape in recorded["shapes"].values())


@pytest.mark.parametrize("name", sorted(RECORDED["blocks"]))
def test_bytes_autograd_keeps_in_a_block(name: str) -> None:
    case = RECORDED["blocks"][name]
    graph = decoder(
        case["model"],
        case["batch"],
        case["seq"],
        autocast=case.get("autocast", False),
        kv_expand=case["kv_expand"],
        rms_norm=case["rms_norm"],
    ).blocks[0]
    recompute = plan_recompute(graph, case["recompute"])
    if recompute.regions:
        # the recorder counts storages rounded to 512: lse and seeds add under 1 KiB
        assert kept_bytes(graph, recompute.kept) == pytest.approx(
            case["live_after_forward"], abs=1024
        )
    else:
        assert graph.saved_bytes() == case["saved_bytes"]


def test_loss_bytes_per_token_and_vocabulary_entry() -> None:
    """10 at the forward peak (2 logits + 4 fp32 + 4 log-softmax), 4 kept, 12 in backward."""
    case = RECORDED["loss"]
    graph = decoder("llama3_8b", 1, case["tokens"]).loss
    unit = case["tokens"] * case["vocab"]
    assert graph.saved_bytes() / unit == pytest.approx(case["after_fwd_B_per_TV"], abs=1e-3)
    forward = sum(kept_bytes(graph, frozenset({v})) for v in range(3))
    assert forward / unit == pytest.approx(case["fwd_peak_B_per_TV"], abs=1e-3)


def test_forward_flops_of_a_block_are_twice_its_weights_and_the_attention() -> None:
    model = decoder("llama2_7b", 2, 1024)
    gemm = sum(op.kernel.flops for op in model.blocks[0].ops if isinstance(op.kernel, Gemm))
    matrices = sum(w.numel for w in model.blocks[0].weights if len(w.shape) == 2)
    assert gemm == 2 * 2 * 1024 * matrices
    attention = [op.kernel for op in model.blocks[0].ops if isinstance(op.kernel, Attention)]
    assert [k.flops for k in attention] == [4 * 2 * 32 * 1024 * 1024 * 128 // 2]


def test_backward_does_twice_the_forward_products() -> None:
    block = decoder("llama3_8b", 1, 512).blocks[0]
    forward = sum(op.kernel.flops for op in block.ops if isinstance(op.kernel, Gemm))
    steps = [step.kernel for op in block.ops for step in op.backward]
    assert sum(k.flops for k in steps if isinstance(k, Gemm)) == 2 * forward


def test_model_flops_a_token_of_llama3_8b() -> None:
    """6 · (8,030,261,248 - 128,256 · 4,096) + 12 · 32 · 4,096 · 8,192."""
    config = PRESETS["llama-3.1-8b"]
    expected = 6 * (8_030_261_248 - 128_256 * 4_096) + 12 * 32 * 4_096 * 8_192
    assert flops_per_token(config, decoder("llama3_8b", 1, 8), 8_192) == expected
