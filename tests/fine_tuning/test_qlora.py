"""4-bit base weights: their bytes, and the whole weight that each product makes for itself.

QLoRA's paper (arXiv:2305.14314): double quantisation brings the scales from 0.5 to 0.127 bits a
parameter. bitsandbytes 0.50 keeps besides a code book of 16, and with double quantisation one of
256 and an offset.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.fine_tuning import ALL_LINEAR, Adapters, FineTuning, Nf4
from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.model.decoder import Shape
from simulator.model.families import FAMILIES
from simulator.model.graph import Graph
from simulator.model.presets import PRESETS
from simulator.plan.plan import Fsdp, Parallelism, Plan
from simulator.plan.precision import RECIPES
from simulator.program.instructions import Alloc, Free
from simulator.program.verify import verify
from tests.strategies import make_plan

ADAPTERS = Adapters(rank=8, targets=(ALL_LINEAR,))
TINY = replace(
    PRESETS["llama-2-7b"],
    **{"style": "hf", "layers": 3, "hidden": 256, "ffn": 512, "vocab": 1024},
    **{"heads": 4, "kv_heads": 2, "head_dim": 64},
)


def plan_of(ranks: int, tuning: FineTuning, **training: Any) -> Plan:
    fields = {"precision": RECIPES["pure-bf16"], "fine_tuning": tuning, **training}
    return make_plan(dp_shard=ranks, **fields)


def size_of(nf4: Nf4, numel: int) -> int:
    return sum(count * dtype.itemsize for _, count, dtype in nf4.states(numel))


@pytest.mark.parametrize(("double", "bits"), [(False, 0.5), (True, 0.127)])
def test_bits_a_parameter_of_the_scales(double: bool, bits: float) -> None:
    numel = 4096 * 11008
    assert 8 * size_of(Nf4(double_quant=double), numel) / numel == pytest.approx(bits, abs=1e-3)


def block(tuning: FineTuning | None, dtype: DType = DType.BF16) -> Graph:
    config = replace(PRESETS["llama-2-7b"], style="hf", layers=2)
    return FAMILIES["llama"](config, Shape(batch=1, seq=4096, dtype=dtype, tuning=tuning)).blocks[1]


def test_the_linears_of_the_blocks_are_packed_and_count_whole() -> None:
    whole, packed = block(None), block(FineTuning(adapters=ADAPTERS, base=Nf4()))
    adapters = sum(weight.numel for weight in packed.trained)
    assert packed.parameters - adapters == whole.parameters
    linears = {w.name for w in packed.weights if w.nf4 is not None}
    assert len(linears) == 7
    for weight in packed.weights:
        if weight.nf4 is not None:
            assert weight.stored_shape == (weight.numel // 4, 1)
            assert weight.dtype is DType.BF16


def test_a_packed_linear_keeps_what_a_frozen_one_does() -> None:
    frozen = block(FineTuning(adapters=ADAPTERS))
    packed = block(FineTuning(adapters=ADAPTERS, base=Nf4()))
    assert packed.saved_bytes() == frozen.saved_bytes()


def test_beside_an_fp32_stream_each_linear_computes_in_bf16() -> None:
    """peft's ``prepare_model_for_kbit_training``: what is not packed is fp32."""
    graph = block(FineTuning(adapters=ADAPTERS, base=Nf4()), DType.FP32)
    products = [op for op in graph.ops if op.name.endswith("_proj")]
    assert {graph.values[op.outputs[0]].dtype for op in products} == {DType.BF16}
    assert graph.values[graph.output].dtype is DType.FP32


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_each_product_makes_the_weight_and_drops_it(double: bool, checkpointing: str) -> None:
    """Once forward, once backward, and once more where the block is recomputed."""
    tuning = FineTuning(adapters=ADAPTERS, base=Nf4(double_quant=double))
    plan = plan_of(1, tuning, activation_checkpointing=checkpointing)
    program = lower(decoder_of(TINY, plan), plan)
    verify(program)
    live: dict[int, str] = {}
    made = 0
    for _, instruction in program.instructions():
        if isinstance(instruction, Alloc) and instruction.tensor.name.endswith("weight.whole"):
            assert not live
            live[instruction.slot] = instruction.tensor.name
            made += 1
        elif isinstance(instruction, Free):
            live.pop(instruction.slot, None)
    # recompute stops at the last adapter, which stands behind all seven linears; the first
    # block's q, k and v need no gradient of their input
    again = 7 if checkpointing == "full" else 0
    assert made == 2 * (3 * (7 + 7 + again) - 3)


def test_fsdp1_shards_packed_weights_in_their_storage_dtype() -> None:
    """``quant_storage`` of bf16: four 4-bit values an element, in flat parameters of bf16."""
    tuning = FineTuning(adapters=ADAPTERS, base=Nf4())

    def start(ranks: int) -> dict[str, int]:
        parallelism = Parallelism(
            framework="fsdp1", dp_shard=ranks, fsdp=Fsdp(wrap="peft", use_orig_params=False)
        )
        plan = replace(plan_of(ranks, tuning), parallelism=parallelism)
        program = lower(decoder_of(TINY, plan), plan)
        verify(program)
        (first, *_) = replay(program).phases
        return dict(first.breakdown)

    graph = decoder_of(TINY, plan_of(1, tuning)).blocks[0]
    two, four = start(2), start(4)
    assert two["buffers"] == four["buffers"] >= 3 * 7 * size_of(Nf4(), 256 * 256)
    linears = sum(weight.numel for weight in graph.weights if weight.nf4)
    rest = sum(weight.numel for weight in graph.weights if weight.nf4 is None)
    whole = 2 * TINY.vocab * TINY.hidden + TINY.hidden + TINY.layers * rest
    assert two["parameters"] == pytest.approx(
        (TINY.layers * linears // 2 + 2 * whole) / 2, rel=0.05
    )


def test_the_states_are_whole_on_every_rank() -> None:
    def buffers(ranks: int) -> int:
        tuning = FineTuning(adapters=ADAPTERS, base=Nf4())
        plan = plan_of(ranks, tuning)
        (start, *_) = replay(lower(decoder_of(TINY, plan), plan)).phases
        return start.breakdown["buffers"]

    assert buffers(1) == buffers(4)
