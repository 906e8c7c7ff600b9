"""DeepSpeed against its real engine: the peak of every phase of every recorded run.

``tests/data/deepspeed_runs.json.gz``: what DeepSpeed 0.19.8's own engine, optimizers, hooks and
``zero.Init`` allocated on fake CUDA tensors (torch 2.13), by phase, on rank 0, with the
configuration of each run. What is below half a percent are numbers of a few bytes, 512 each.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from simulator.dtypes import SHORT_NAMES, DType
from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.plan.plan import Fsdp, Parallelism, Plan, Precision, Training
from simulator.plan.zero import Zero
from simulator.program.verify import verify
from tests.recorded import DATA, MODELS

RUNS: dict[str, Any] = json.loads(gzip.decompress((DATA / "deepspeed_runs.json.gz").read_bytes()))[
    "runs"
]

EVERYWHERE = 0.002
"""Relative error of a phase's peak in a run of a real size."""

SMALL_MODEL = 0.005
"""Likewise where the whole model is as large as a few of the numbers that are left out."""

SMALL = ModelConfig(
    name="small", family="llama", layers=4, hidden=512, ffn=1376, heads=8, kv_heads=8,
    vocab=8192, head_dim=64,
)  # fmt: skip


def model_of(config: dict[str, Any]) -> ModelConfig:
    found = SMALL if config["model"] == "small" else MODELS[f"titan:{config['model']}"]
    return replace(found, layers=config["L"])


def zero_of(config: dict[str, Any]) -> Zero:
    given = {key.removeprefix("stage3_"): value for key, value in config["zero"].items()}
    given.pop("allgather_bucket_size", None)
    for part in ("offload_optimizer", "offload_param"):
        if part in given:
            given[part] = True
    return Zero(**{"overlap_comm": config["stage"] == 3} | given, built_on=config["built_on"])


def precision_of(config: dict[str, Any]) -> Precision:
    model = SHORT_NAMES[config["dtype"]]
    wide = config["extra"].get("data_types", {}).get("grad_accum_dtype") == "fp32"
    return Precision(
        name="recorded",
        parameters=model,
        compute=model,
        gradients=DType.FP32 if wide else model,
        reduce=model,
        master=DType.FP32,
        moments=DType.FP32,
    )


def plan_of(config: dict[str, Any]) -> Plan:
    return Plan(
        parallelism=Parallelism(
            framework="deepspeed",
            dp_shard=config["ws"],
            fsdp=Fsdp(wrap="none"),
            zero=zero_of(config),
        ),
        training=Training(
            seq_len=config["s"],
            micro_batch=config["mb"],
            grad_accum=config["ga"],
            precision=precision_of(config),
            optimizer_implementation=config["opt"].removeprefix("torch_"),
            clip_grad_norm=config["clip"] or None,
            activation_checkpointing=config["ac"],
        ),
    )


@cache
def peaks(name: str) -> dict[tuple[int, str], int]:
    plan, model = plan_of(RUNS[name]["config"]), model_of(RUNS[name]["config"])
    program = lower(decoder_of(model, plan), plan, 3)
    verify(program)
    return {(p.step, p.phase): p.allocated for p in replay(program, detail=False).phases}


def modelled(config: dict[str, Any]) -> bool:
    zero = zero_of(config)
    offloads = zero.offload_optimizer or zero.offload_param
    return zero.stage < 3 and not offloads


@pytest.mark.parametrize("name", [name for name in RUNS if modelled(RUNS[name]["config"])])
def test_peaks_of_every_phase(name: str) -> None:
    small = RUNS[name]["config"]["model"] == "small"
    for step, phase, recorded in RUNS[name]["peaks"]:
        found = peaks(name)[step, phase]
        limit = SMALL_MODEL if small else EVERYWHERE
        assert abs(found / recorded - 1) < limit, (step, phase, found, recorded)
