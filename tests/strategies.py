"""Hypothesis strategies that more than one test uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from simulator.dtypes import DType
from simulator.lowering.optimizer import DTENSOR_REFUSES, OPTIMIZERS
from simulator.model.config import ModelConfig
from simulator.plan.plan import Fsdp, Hyper, Parallelism, Plan, Precision, Training

MIXED = Precision(
    name="fsdp-mixed",
    parameters=DType.FP32,
    compute=DType.BF16,
    gradients=DType.FP32,
    reduce=DType.FP32,
    master=None,
    moments=DType.FP32,
)
PURE = Precision(
    name="pure-bf16",
    parameters=DType.BF16,
    compute=DType.BF16,
    gradients=DType.BF16,
    reduce=DType.BF16,
    master=None,
    moments=DType.BF16,
)


def make_plan(
    *,
    dp_shard: int = 8,
    dp_replicate: int = 1,
    fsdp: Fsdp | None = None,
    offload: bool = False,
    **training: Any,
) -> Plan:
    """A plan; ``training`` overrides the fields of Training."""
    fields: dict[str, Any] = {"seq_len": 128, "micro_batch": 1, "precision": MIXED} | training
    return Plan(
        parallelism=Parallelism(dp_shard=dp_shard, dp_replicate=dp_replicate, fsdp=fsdp or Fsdp()),
        training=Training(**fields),
        offload_parameters=offload,
    )


BF16_REDUCE = replace(MIXED, name="bf16-reduce", reduce=DType.BF16)


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Small Llamas of odd shapes."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    head_dim = 2 * draw(st.integers(1, 20))
    return ModelConfig(
        name="small",
        family="llama",
        layers=draw(st.integers(1, 4)),
        hidden=heads * head_dim,
        ffn=draw(st.integers(1, 300)),
        heads=heads,
        kv_heads=kv_heads,
        vocab=draw(st.integers(1, 500)),
        head_dim=head_dim,
        rms_norm=draw(st.sampled_from(["fused", "composite"])),
        kv_expand=draw(st.booleans()),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Every knob this version lowers, at odd sizes."""
    world, reshard = draw(st.integers(1, 70)), draw(st.sampled_from([True, False, 2, 4]))
    if not isinstance(reshard, bool):
        world = reshard * draw(st.integers(2, 9))
    in_backward = draw(st.sampled_from([False, False, False, True]))
    name, implementation = draw(st.sampled_from(sorted(OPTIMIZERS.keys() - DTENSOR_REFUSES.keys())))
    return make_plan(
        dp_shard=world,
        dp_replicate=draw(st.sampled_from([1, 1, 3])),
        fsdp=Fsdp(
            wrap=draw(
                st.sampled_from(["torchtitan", "block", "none", ("layers.*", "norm, output")])
            ),
            reshard_after_forward=reshard,
            reshard_last_block=draw(st.booleans()),
            reshard_after_backward=draw(st.booleans()),
            sync_every_micro_batch=draw(st.booleans()),
            forward_prefetch=draw(st.integers(0, 3)),
        ),
        offload=draw(st.sampled_from([False, False, True])),
        seq_len=draw(st.integers(1, 200)),
        micro_batch=draw(st.integers(1, 3)),
        grad_accum=1 if in_backward else draw(st.integers(1, 3)),
        optimizer_in_backward=in_backward,
        precision=draw(st.sampled_from([MIXED, PURE, BF16_REDUCE])),
        optimizer=name,
        optimizer_implementation=implementation,
        hyper=Hyper(
            weight_decay=draw(st.sampled_from([None, 0.0, 0.1])),
            momentum=draw(st.sampled_from([0.0, 0.9])),
            amsgrad=draw(st.booleans()),
        ),
        clip_grad_norm=None if in_backward else draw(st.sampled_from([None, 1.0])),
        activation_checkpointing=draw(
            st.sampled_from(
                ["none", "full", "selective-op", "megatron-selective", "every-2", "every-3"]
            )
        ),
        checkpoint_save=draw(st.sampled_from([None, (), ("aten.mm",), ("aten.silu", "aten.mm/3")])),
        checkpoint_modules=draw(
            st.lists(st.sampled_from(["core_attn", "mlp", "layernorm"]), unique=True).map(tuple)
        ),
        early_stop=draw(st.booleans()),
        compile=draw(st.sampled_from(["none", "none", "block"])),
    )
