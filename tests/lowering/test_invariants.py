"""What must hold for any model and plan, stated before any number is computed.

* a program keeps its own rules: every tensor is freed once or resident (``verify``);
* after step 1 as much is live as after step 0 (no leak);
* what is resident is each rank's padded shard in the stored dtype plus two moments (plus step
  counters when fused) plus the rotary table;
* more checkpointing keeps no more bytes from forward to backward and does no fewer FLOPs;
* every parameter's gradient appears exactly once a step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hypothesis import given

from simulator.kernels import Attention, Gemm
from simulator.lowering.lower import decoder_of, lower
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.shards import Shard
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.plan.plan import Plan
from simulator.program.instructions import Alloc, Category, Launch, rounded
from simulator.program.program import Program
from simulator.program.verify import verify
from tests.lowering.states import states_of
from tests.strategies import make_plan, models, plans


def program(model: ModelConfig, plan: Plan, steps: int = 2) -> Program:
    return lower(decoder_of(model, plan), plan, steps)


def flops(found: Program) -> int:
    return sum(
        i.kernel.flops
        for _, i in found.instructions()
        if isinstance(i, Launch) and isinstance(i.kernel, Gemm | Attention)
    )


@given(models(), plans())
def test_programs_verify_and_do_not_leak(model: ModelConfig, plan: Plan) -> None:
    found = program(model, plan, steps=3)
    verify(found)
    resident = replay(found, detail=False).resident
    assert resident[0] == resident[1] == resident[2]


@given(models(), plans())
def test_resident_state_is_the_closed_form(model: ModelConfig, plan: Plan) -> None:
    decoder = decoder_of(model, plan)
    world, training = plan.parallelism.dp_shard, plan.training
    weights = [
        *decoder.embedding.weights,
        *decoder.blocks[0].weights * decoder.layers,
        *decoder.head.weights,
    ]
    optimizer = OPTIMIZERS[training.optimizer_choice](
        training.optimizer, training.precision, training.hyper
    )
    expected = rounded(8 * training.seq_len * (model.head_dim // 2))
    for weight in weights if not plan.offload_parameters else ():
        shape = (-(-weight.shape[0] // world), *weight.shape[1:])
        expected += rounded(prod(shape) * training.precision.parameters.itemsize)
        expected += states_of(optimizer, Shard(weight=weight, shape=shape, world=world))
    assert replay(lower(decoder, plan), detail=False).resident[-1] == expected


@given(models(), plans())
def test_checkpointing_keeps_less_and_computes_more(model: ModelConfig, plan: Plan) -> None:
    kept, work = [], []
    for mode in ("none", "selective-op", "full"):
        changes = {"activation_checkpointing": mode, "early_stop": True}
        one = replace(plan, training=replace(plan.training, **changes))
        decoder = decoder_of(model, one)
        values = plan_recompute(decoder.blocks[0], mode).kept
        kept.append(
            sum(
                prod(decoder.blocks[0].values[v].shape) * decoder.blocks[0].values[v].dtype.itemsize
                for v in values
            )
        )
        work.append(flops(lower(decoder, one)))
    assert kept[1] >= kept[2]
    assert work[0] < work[1] <= work[2]


@given(models(), plans())
def test_every_weight_gets_one_gradient_a_step(model: ModelConfig, plan: Plan) -> None:
    found = program(model, plan)
    gradients = [
        (call.micro_batch, call.layer, i.tensor.name)
        for call, i in found.instructions()
        if isinstance(i, Alloc)
        and i.tensor.category is Category.UNSHARDED_GRADIENTS
        and call.step == 1
        and not i.tensor.name.endswith(".accumulated")
    ]
    decoder = decoder_of(model, plan)
    count = (
        len(decoder.embedding.weights)
        + decoder.layers * len(decoder.blocks[0].weights)
        + len(decoder.head.weights)
    )
    assert len(gradients) == len(set(gradients)) == count * plan.training.grad_accum


def test_flops_of_a_step_are_six_a_matmul_parameter_and_token() -> None:
    """2 forward + 4 backward, and 2·(1 + 2.5) · 4·s²·h/2 for causal attention, a layer."""
    model = ModelConfig(
        name="m", family="llama", layers=3, hidden=64, ffn=160, heads=4, kv_heads=2, vocab=96,
        head_dim=16,
    )  # fmt: skip
    plan = make_plan(seq_len=32, micro_batch=2)
    decoder = decoder_of(model, plan)
    weights = [*decoder.blocks[0].weights * 3, *decoder.head.weights]
    matrices = sum(w.numel for w in weights if len(w.shape) == 2)
    attention = 3 * (2 * 4 * 32 * 32 * 64) // 2 * 7 // 2
    assert flops(lower(decoder, plan)) == 2 * (6 * matrices * 64 + attention)
