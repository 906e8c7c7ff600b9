"""What every framework must keep, stated before any number is computed.

* its programs keep their own rules (``verify``), and each step ends with as much live as it began;
* its shards are the parameters: over all ranks no element is missing, and each is stepped once;
* its collectives run in groups that are axes of the mesh, of more than one rank;
* a step reduces each gradient over all ranks that have one: so many bytes, padding included;
* nothing is gathered or reduced where there is one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from simulator.dtypes import DType
from simulator.lowering.framework import FRAMEWORKS
from simulator.lowering.lower import decoder_of, lower
from simulator.lowering.units import units_of
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.model.graph import Weight
from simulator.plan.mesh import AXES
from simulator.plan.plan import Fsdp, Plan, Precision
from simulator.plan.precision import RECIPES, casts
from simulator.plan.zero import Zero
from simulator.program.instructions import Alloc, Category, Collective
from simulator.program.program import Program
from simulator.program.verify import verify
from simulator.scenario.frameworks import RULES
from tests.strategies import MIXED, PURE, make_plan

STAGES = (0, 1, 2)

MODEL = ModelConfig(
    name="m", family="llama", layers=3, hidden=96, ffn=200, heads=4, kv_heads=2, vocab=131,
    head_dim=24,
)  # fmt: skip

SIZES = {
    (): [(1, 1)],
    ("dp_replicate",): [(1, 5), (1, 1)],
    ("dp_shard",): [(5, 1), (1, 1)],
    ("dp_shard", "dp_replicate"): [(5, 1), (4, 3)],
}
"""By axes that a framework splits the job over: (dp_shard, dp_replicate) to try."""


MASTERED = RECIPES["bf16-mixed-master"]

BUCKET = 15_000
"""Elements: several weights of MODEL, but not its largest."""


def zeros() -> list[Zero]:
    """DeepSpeed's stages, reduced while backward goes on or not, in buckets or not."""
    found = [Zero(stage=stage, reduce_bucket_size=BUCKET, built_on="cuda") for stage in STAGES]
    changed = (
        {"overlap_comm": True, "round_robin_gradients": True, "built_on": "cpu"},
        {"contiguous_gradients": False, "reduce_scatter": False},
    )
    return found + [replace(zero, **change) for zero in found for change in changed]


def precisions(name: str) -> list[Precision]:
    if name == "deepspeed":
        return [MASTERED, replace(MASTERED, gradients=DType.FP32)]
    return [MIXED, PURE] if casts(name) else [PURE]


def plans(name: str) -> Iterator[Plan]:
    rules = RULES[name]
    settings = product(
        SIZES[rules.axes],
        ["none"] if name == "deepspeed" else [rules.wrap or "torchtitan", "none"],
        [(1, True), (3, True)] if name == "deepspeed" else [(1, True), (3, True), (3, False)],
        precisions(name),
        ["full"] if name == "fsdp2" else ["none", "full"],
        zeros() if name == "deepspeed" else [Zero()],
    )
    for (shard, replicate), wrap, (accumulation, sync), precision, checkpointing, zero in settings:
        made = make_plan(
            dp_shard=shard,
            dp_replicate=replicate,
            fsdp=Fsdp(wrap=wrap, sync_every_micro_batch=sync, use_orig_params=wrap != "none"),
            grad_accum=accumulation,
            precision=precision,
            activation_checkpointing=checkpointing,
            clip_grad_norm=1.0,
        )
        plan = replace(made, parallelism=replace(made.parallelism, framework=name, zero=zero))
        if runs(plan):
            yield plan


def runs(plan: Plan) -> bool:
    """What is refused is refused by name: tests/scenario/test_zero.py."""
    precision, stage = plan.training.precision, plan.parallelism.zero.stage
    widens = precision.gradients is not precision.parameters
    return not (plan.parallelism.framework == "deepspeed" and stage == 0 and widens)


@cache
def programs(name: str) -> list[tuple[Plan, Program]]:
    return [(plan, lower(decoder_of(MODEL, plan), plan, 3)) for plan in plans(name)]


def collectives(program: Program, step: int) -> list[Collective]:
    return [
        i
        for call, i in program.instructions()
        if isinstance(i, Collective) and call.step == step and "grad_norm" not in i.name
    ]


def most_padding(weights: list[Weight], world: int) -> int:
    """A row a rank, or of a flat parameter the alignment of each weight, which rank 0 may hold."""
    return sum(max(weight.numel // weight.shape[0], 8) for weight in weights) * world


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_programs_keep_their_rules_and_every_step_ends_as_it_began(name: str) -> None:
    for _, program in programs(name):
        verify(program)
        resident = replay(program, detail=False).resident
        assert resident[0] == resident[1] == resident[2]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_shards_are_the_parameters_and_each_is_stepped_once(name: str) -> None:
    for plan, program in programs(name):
        decoder, world = decoder_of(MODEL, plan), plan.parallelism.dp_shard
        if plan.parallelism.framework == "deepspeed" and plan.parallelism.zero.stage == 0:
            world = 1
        units = units_of(decoder, plan.training, wrap=plan.parallelism.fsdp.wrap)
        framework = FRAMEWORKS[name](plan, units)
        held = sum(s.numel for unit in units for s in framework.shards(unit.kind))
        weights = [weight for unit in units for weight in unit.kind.graph.weights]
        whole = sum(weight.numel for weight in weights)
        assert abs(held * world - whole) <= most_padding(weights, world)
        states = [
            i.tensor.requested
            for call, i in program.instructions()
            if isinstance(i, Alloc) and i.tensor.category is Category.OPTIMIZER
        ]
        precision = plan.training.precision
        copies = precision.master.itemsize if precision.master else 0
        assert sum(states) == held * (2 * precision.moments.itemsize + copies)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_collectives_run_along_axes_of_the_mesh(name: str) -> None:
    for plan, program in programs(name):
        for step in range(2):
            for found in collectives(program, step):
                assert found.group in AXES
                assert getattr(plan.parallelism, found.group) > 1


def reductions(plan: Plan) -> list[tuple[str, int, int, int]]:
    """Kinds of collective that sum gradients: over so many ranks, so large a part, so often."""
    parallelism, often = plan.parallelism, plan.training.grad_accum
    if parallelism.framework == "deepspeed":
        often = often if parallelism.zero.stage == 2 else 1
        return [("all_reduce", parallelism.dp_shard, 1, often), ("reduce_scatter", 1, 1, 0)]
    often = often if parallelism.fsdp.sync_every_micro_batch else 1
    shard, replicate = parallelism.dp_shard, parallelism.dp_replicate
    return [("reduce_scatter", shard, 1, often), ("all_reduce", replicate, shard, often)]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_step_reduces_every_gradient(name: str) -> None:
    """Whole gradients over dp_shard; over dp_replicate what a reduce_scatter left of them."""
    for plan, program in programs(name):
        parallelism, training = plan.parallelism, plan.training
        units = units_of(decoder_of(MODEL, plan), training, wrap=parallelism.fsdp.wrap)
        weights = [weight for unit in units for weight in unit.kind.graph.weights]
        whole = sum(weight.numel for weight in weights)
        for kind, ranks, parts, often in reductions(plan):
            found = sum(c.bytes for c in collectives(program, 1) if c.kind == kind)
            if ranks == 1:
                assert not found
                continue
            padding = found * parts / (training.precision.reduce.itemsize * often) - whole
            assert 0 <= padding <= most_padding(weights, parallelism.dp_shard)
