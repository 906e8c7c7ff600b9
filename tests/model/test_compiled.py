"""What torch.compile keeps of a block, against what its partitioner kept.

The recordings are of torch 2.13's own minimum cut over AOTAutograd's traces of real blocks. What
must come out: the same storages by size, those under 64 bytes (seeds) aside. Where it does not:

* a softmax that is computed again from its scores keeps each row's maximum and sum, fp32, which
  the graph's op does not name;
* two norms of one input are one: GPT-NeoX keeps one mean and one rstd for both;
* their normed state is one too, so far up the second norm that torch makes it no more again: of
  float8 linears the second's input waits in float8;
* Phi's rotary ``cat`` is laid out anew by the compiler so that making attention's output contiguous
  is no copy: here one more tensor of the hidden size is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.lowering.compiled import plan_compiled
from simulator.lowering.lower import decoder_of, lower
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.units import units_of
from simulator.memory.ledger import replay
from simulator.model.graph import Graph
from simulator.model.presets import PRESETS
from simulator.plan.plan import Training
from simulator.program.verify import verify
from tests.recorded import DATA, model_and_plan
from tests.strategies import MIXED, make_plan

RECORDED: dict[str, Any] = json.loads((DATA / "recorded_compile.json").read_text())
SEEDS = 64
SCALES = 2**14
"""Under which scales of rows and columns lie: which of them is kept differs by a few."""

STATISTICS = {
    "hf_llama3_8b_eager": (4, 32),
    "hf_gemma2_9b_eager": (4, 16),
    "float8_hf_llama3_8b_eager": (4, 32),
}
"""Cases whose softmax keeps two rows of statistics: bytes, heads."""


def block(config: dict[str, Any]) -> tuple[Graph, Training]:
    named = {**config, "model": config["model"].removeprefix("hf:")}
    model, plan = model_and_plan(named)
    plan = replace(plan, training=replace(plan.training, compile="block"))
    return decoder_of(model, plan).blocks[0], plan.training


def kept(graph: Graph, training: Training) -> Counter[int]:
    checkpoints = plan_recompute(
        graph,
        training.activation_checkpointing,
        save=training.checkpoint_save,
        modules=training.checkpoint_modules,
    )
    found = plan_compiled(graph, checkpoints.regions)
    sizes = (graph.values[value].bytes for value in found.kept)
    return Counter(size for size in sizes if size >= SEEDS)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_the_partitioner_keeps(name: str) -> None:
    config = RECORDED[name]["config"]
    least = SCALES if config.get("fp8") == "rowwise" else SEEDS
    expected = Counter(size for size in RECORDED[name]["kept"] if size >= least)
    rows = config["mb"] * config["seq"]
    if name in STATISTICS:
        width, heads = STATISTICS[name]
        expected[width * heads * rows] -= 2
    if name.endswith("hf_gpt_neox_20b"):
        expected[4 * rows] += 2
    if name == "float8_hf_gpt_neox_20b":
        expected[rows * 6144] -= 1
    if name == "hf_phi4":
        expected[2 * rows * 5120] += 1
    found = kept(*block(config))
    assert Counter({size: count for size, count in found.items() if size >= least}) == +expected


@pytest.mark.parametrize("grouped", [False, True])
def test_sixteen_and_six_f(grouped: bool) -> None:
    """16 + 6f, and 4(1 - g) less with native grouped-query attention; two rstd and a lse beside."""
    config = RECORDED["titan_grouped" if grouped else "titan"]["config"]
    graph, training = block({**config, "model": "titan:llama3_8b"})
    hidden, rows = 4096, config["mb"] * config["seq"]
    unit, wide, share = hidden * rows, 14336 / 4096, 8 / 32
    expected = (16 + 6 * wide - (4 * (1 - share) if grouped else 0)) * unit
    found = sum(size * count for size, count in kept(graph, training).items())
    assert found == expected + 2 * 4 * rows + 4 * 32 * rows


def test_selective_op_drops_what_backward_does_not_read() -> None:
    """Every second product is kept; w2's result, eagerly cached, is nobody's input in backward."""
    graph, _ = block(RECORDED["titan_llama2_7b_selective_op"]["config"])
    eager = plan_recompute(graph, "selective-op").kept
    compiled = plan_compiled(graph, plan_recompute(graph, "selective-op").regions).kept
    assert [graph.values[value].name for value in eager - compiled] == ["w2.out"]


def test_float8_keeps_13_and_4_f_and_attention_once_more_in_float8() -> None:
    """x, q, k, v, attention's output and the product of it: 12, and 1; of the MLP 4 f.

    What linears read is made again from those, but attention's output, which nothing is fused to.
    """
    config = RECORDED["float8"]["config"]
    graph, training = block({**config, "model": "titan:llama3_8b"})
    rows, wide = config["mb"] * config["seq"], 14336 / 4096
    found = sum(size * count for size, count in kept(graph, training).items())
    assert found == (13 + 4 * wide) * 4096 * rows + 2 * 4 * rows + 4 * 32 * rows


def test_a_step_of_float8_multiplies_and_moves_what_the_eager_one_does_and_no_more() -> None:
    """Each operand is cast once; products are the same."""
    model = replace(PRESETS["llama-3.1-8b"], layers=2)
    for mode in ("none", "selective-op", "full"):
        flops, moved, peaks = [], [], []
        for compile in ("none", "block"):
            precision = replace(MIXED, fp8="tensorwise")
            plan = make_plan(
                seq_len=1024, precision=precision, activation_checkpointing=mode, compile=compile
            )
            program = lower(decoder_of(model, plan), plan)
            kernels = [i.kernel for _, i in program.instructions() if hasattr(i, "kernel")]
            flops.append(sum(k.flops for k in kernels if getattr(k, "dtype", None) is DType.FP8))
            moved.append(_bytes(program))
            peaks.append(max(p.allocated for p in replay(program, detail=False).phases))
        assert flops[0] == flops[1] > 0
        assert moved[1] < 0.7 * moved[0]
        assert peaks[1] <= peaks[0] - (mode == "none")


@pytest.mark.parametrize("fp8", [None, "tensorwise", "tensorwise-all-gather", "rowwise"])
@pytest.mark.parametrize("mode", ["none", "selective-op", "full", "megatron-selective", "every-2"])
@pytest.mark.parametrize("style", ["torchtitan", "hf"])
def test_a_compiled_step_keeps_its_rules_and_needs_no_more(
    mode: str, style: str, fp8: str | None
) -> None:
    """Fused kernels read and write less, and what they pass on is never allocated."""
    model = replace(PRESETS["llama-3.1-8b"], layers=3, style=style)
    peaks, moved = [], []
    for compile in ("none", "block"):
        precision = replace(MIXED, fp8=fp8 if compile == "block" else None)
        plan = make_plan(
            seq_len=1024,
            precision=precision,
            activation_checkpointing=mode,
            compile=compile,
            grad_accum=2,
        )
        program = lower(decoder_of(model, plan), plan)
        verify(program)
        memory = replay(program, detail=False)
        assert memory.resident[0] == memory.resident[1]
        peaks.append(max(phase.allocated for phase in memory.phases))
        moved.append(_bytes(program))
    assert peaks[1] <= peaks[0]
    assert fp8 is not None or moved[1] < moved[0]


def _bytes(program: Any) -> int:
    kernels = (i.kernel for _, i in program.instructions() if hasattr(i, "kernel"))
    return sum(kernel.bytes for kernel in kernels)


@pytest.mark.parametrize("mode", ["none", "selective-op", "full"])
def test_products_are_computed_again_as_without_the_compiler(mode: str) -> None:
    model = PRESETS["llama-2-7b"]
    found = []
    for compile in ("none", "block"):
        plan = make_plan(activation_checkpointing=mode, compile=compile)
        units = units_of(decoder_of(model, plan), plan.training)
        found.append(sum(unit.kind.recomputed_flops for unit in units))
    assert found[0] == found[1]
