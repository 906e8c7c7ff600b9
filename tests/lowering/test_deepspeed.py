"""DeepSpeed in closed forms: what each stage divides, and what its buckets cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.model.presets import PRESETS
from simulator.plan.plan import Fsdp, Plan
from simulator.plan.precision import RECIPES
from simulator.plan.zero import Zero
from simulator.program.instructions import Alloc
from simulator.program.program import Phase
from tests.strategies import make_plan

LLAMA_7B = PRESETS["llama-2-7b"]
PARAMETERS = 6_738_415_616

SMALL = ModelConfig(
    name="small", family="llama", layers=2, hidden=256, ffn=512, heads=4, kv_heads=4,
    vocab=1024, head_dim=64,
)  # fmt: skip


def plan_of(stage: int, ranks: int = 8, **zero: object) -> Plan:
    plan = make_plan(
        dp_shard=ranks,
        fsdp=Fsdp(wrap="none"),
        precision=RECIPES["bf16-mixed-master"],
        activation_checkpointing="full",
        optimizer_implementation="fused",
    )
    knobs = Zero(stage=stage, **zero)  # type: ignore[arg-type]
    parallelism = replace(plan.parallelism, framework="deepspeed", zero=knobs)
    return replace(plan, parallelism=parallelism)


def breakdown(model: ModelConfig, plan: Plan, phase: str) -> dict[str, int]:
    program = lower(decoder_of(model, plan), plan, 2)
    found = replay(program, detail=False).phases
    return dict(next(p.breakdown for p in found if (p.step, p.phase) == (1, phase)))


def peak(model: ModelConfig, plan: Plan, phase: str) -> int:
    return sum(breakdown(model, plan, phase).values())


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_states_are_divided_by_the_ranks_and_weights_are_not(stage: int, ranks: int) -> None:
    """Of 7 B parameters: 14 GB of weights a rank, 84 GB of fp32 copies and moments in all, of
    which 56 GB are moments (ZeRO, arXiv:1910.02054, section 3.1: 2 and 12 bytes)."""
    found = breakdown(LLAMA_7B, plan_of(stage, ranks), "forward")
    assert found["parameters"] == pytest.approx(2 * PARAMETERS, rel=1e-6)
    assert found["optimizer"] == pytest.approx(12 * PARAMETERS / ranks, rel=1e-5)


def test_stage_1_keeps_gradients_whole_until_the_last_backward_ends_and_stage_2_never() -> None:
    """Without overlap; the embedding's gradient, which comes last, is larger than no bucket."""
    whole = 2 * PARAMETERS
    first, second = (breakdown(LLAMA_7B, plan_of(stage), "backward") for stage in (1, 2))
    assert first["gradients"] > 0.9 * whole
    assert second.get("gradients", 0) + second.get("unsharded_gradients", 0) < 0.3 * whole


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("size", [50_000_000, 500_000_000])
def test_overlap_doubles_the_buckets(stage: int, size: int) -> None:
    buckets = []
    for overlap in (False, True):
        plan = plan_of(stage, overlap_comm=overlap, reduce_bucket_size=size)
        program = lower(decoder_of(LLAMA_7B, plan), plan, 1)
        buckets.append(
            [
                i.tensor.requested
                for call, i in program.instructions()
                if isinstance(i, Alloc)
                and i.tensor.name.startswith("bucket.")
                and i.tensor.name != "bucket.flat"
                and call.phase is Phase.BACKWARD
            ]
        )
    assert buckets == [[2 * size], [2 * size, 2 * size]]


def test_a_step_holds_gradients_twice_and_in_fp32() -> None:
    """(2 + 2 + 4) bytes of the partition beside the states, and what of the last weight in it
    belongs to the next rank."""
    plan = plan_of(2)
    found = breakdown(LLAMA_7B, plan, "optimizer")
    assert found["optimizer_temporaries"] == pytest.approx(6 * PARAMETERS / 8, rel=1e-6)
    edge = 11008 * 4096
    assert 0 <= found["gradients"] - 2 * PARAMETERS / 8 <= 2 * edge
