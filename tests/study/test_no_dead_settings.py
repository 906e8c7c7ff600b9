"""Every key that is honoured changes the answer, the warnings or a verdict; else it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import ScenarioError
from simulator.run import run
from simulator.scenario import Scenario, load, with_changes
from simulator.study.check import check
from simulator.study.validate import validate
from simulator.trace.result import summarise
from tests.scenario.test_contract import HONOURED

BASE: dict[str, Any] = {
    "name": "base",
    "model": {
        "preset": "llama-2-7b",
        **{"layers": 3, "hidden": 512, "ffn": 1024, "heads": 8, "kv_heads": 4, "vocab": 2048},
    },
    "cluster": {"topology": "dgx-a100", "nodes": 1},
    "parallelism": {"framework": "fsdp2"},
    "training": {"seq_len": 512, "micro_batch": 1},
    "measured": {"peak_allocated": "1 GiB", "step_time": "1 s", "fits": True},
}

MIXTURE = {"model": {"preset": "mixtral-8x7b", "layers": 1, "hidden": 512, "ffn": 1024}}
LATENT = {"model": {"preset": "deepseek-v3", "layers": 2, "hidden": 512, "experts": 16}}
LATENT["model"] |= {"expert_groups": 4, "topk_groups": 2, "dense_layers": 1}

BEFORE: dict[str, dict[str, Any]] = {
    "model.preset": {"model": {"preset": "llama-2-7b", "layers": 2}},
    "model.dropout": {"model": {"preset": "gpt2", "layers": 2}},
    "model.experts": MIXTURE,
    "model.experts_per_token": MIXTURE,
    "model.expert_ffn": MIXTURE,
    "model.experts_implementation": MIXTURE,
    **{
        f"model.{key}": LATENT
        for key in ("shared_ffn", "dense_layers", "expert_groups", "topk_groups")
    },
    **{f"model.{key}": LATENT for key in ("q_rank", "kv_rank", "rope_head_dim", "v_head_dim")},
    "model.window": {"model": {"preset": "mistral-7b", "layers": 2}},
    "training.attention": {"model": {"preset": "mistral-7b", "layers": 2}},
    "training.packing": {"model.style": "hf"},
    "parallelism.fsdp.reshard_after_backward": {
        "training.grad_accum": 2,
        "parallelism.fsdp.sync_every_micro_batch": False,
    },
    "parallelism.fsdp.sync_every_micro_batch": {"training.grad_accum": 2},
    **{
        f"parallelism.zero.{key}": {
            "parallelism": {"framework": "deepspeed", "zero": {"stage": 1}},
            "training.clip_grad_norm": 1.0,
        }
        for key in (
            "stage",
            "overlap_comm",
            "contiguous_gradients",
            "reduce_scatter",
            "round_robin_gradients",
            "reduce_bucket_size",
            "allgather_bucket_size",
            "built_on",
        )
    },
    **{
        f"parallelism.ddp.{key}": {"parallelism.framework": "ddp", "model.style": "torchtitan"}
        for key in ("bucket_cap", "gradient_as_bucket_view")
    },
    **{
        f"parallelism.fsdp.{key}": {"parallelism.framework": "fsdp1", "model.style": "torchtitan"}
        for key in ("backward_prefetch", "limit_all_gathers", "use_orig_params")
    },
    "training.activation_checkpointing.early_stop": {"training.activation_checkpointing": "full"},
    "training.activation_checkpointing.offload": {"training.activation_checkpointing": "full"},
    "training.activation_checkpointing.reentrant": {
        "parallelism.framework": "single",
        "cluster.gpus_per_node": 1,
        "training.precision": "pure-bf16",
        "training.activation_checkpointing": "full",
    },
    "training.activation_checkpointing.save": {"training.activation_checkpointing": "selective-op"},
    "training.activation_checkpointing.modules": {
        "training.activation_checkpointing": "megatron-selective"
    },
    **{
        f"training.fine_tuning.{key}": {
            "training.fine_tuning": "lora",
            "training.precision": "pure-bf16",
            "model.style": "hf",
        }
        for key in (
            "rank",
            "targets",
            "dropout",
            "adapters",
            "dora",
            "rank_stabilized",
            "also_train",
        )
    },
    "training.fine_tuning.norms": {
        "parallelism.framework": "single",
        "cluster.gpus_per_node": 1,
        "training.fine_tuning": "lora",
        "training.precision": {"parameters": "bf16", "autocast": True},
    },
    "measured.of": {"measured.host_peak": "1 GiB"},
    "measured.tokens_per_s_per_gpu": {"measured.step_time": None},
}
"""What must be set before a key can have an effect."""

VALUES: dict[str, Any] = {
    "model.hidden": 256,
    "model.ffn": 2048,
    "model.heads": 16,
    "model.kv_heads": 2,
    "model.head_dim": 32,
    "model.dropout": 0.0,
    "model.experts": 4,
    "model.experts_per_token": 1,
    "model.expert_ffn": 512,
    "model.experts_implementation": "eager",
    "model.shared_ffn": 512,
    "model.dense_layers": 2,
    "model.expert_groups": 8,
    "model.topk_groups": 4,
    "model.q_rank": 0,
    "model.kv_rank": 128,
    "model.rope_head_dim": 32,
    "model.v_head_dim": 64,
    "model.window": 256,
    "cluster.gpu": "h200-sxm-141gb",
    "parallelism.ddp.bucket_cap": "1 MiB",
    "parallelism.zero.built_on": "cuda",
    "training.attention": "eager",
    "training.packing": "padded",
    "training.activation_checkpointing.reentrant": True,
    "training.fine_tuning.norms": "fp32",
    "training.activation_checkpointing.save": ["aten.mm"],
    "training.activation_checkpointing.modules": ["mlp"],
    "training.loss": "compiled",
    "software.torch": "2.6",
    "what_if": [{"set": {"training.micro_batch": 2}}],
    "measured.host_peak": "2 GiB",
    "measured.fits": False,
}
"""Values where those of the contract's test don't fit this base."""

REFUSED = {
    "model.hf_config": "config.json",
    "parallelism.framework": "megatron",
    "offload.gradients": "host",
    "offload.optimizer": "host",
}
"""Keys that have one value so far, or only one that agrees with others."""

SAME = {"measured.of": "every rank of FSDP2 peaks alike", "what_if": "it is asked for by name"}
"""Keys that cannot change an answer of this version, and why."""


def answers(scenario: Scenario) -> str:
    """All that a scenario is answered with, as text."""
    offloads = scenario.plan.offload_parameters
    trace = run(scenario, memory_only=offloads)
    parts: list[object] = [summarise(trace).to_json(), trace.header.warnings]
    if not offloads:
        parts += [check(scenario).to_json(), validate({"case": scenario}).to_json()]
    return json.dumps(parts)


def value(key: str) -> Any:
    found = VALUES.get(key, HONOURED[key])
    return {"true": True, "false": False}.get(found, found) if isinstance(found, str) else found


@pytest.mark.parametrize("key", sorted(set(HONOURED) - set(REFUSED) - set(SAME)))
def test_every_key_changes_something(key: str) -> None:
    before = with_changes(load(BASE), BEFORE.get(key, {}))
    change = value(key)
    change = change.strip("'") if isinstance(change, str) else change
    assert answers(with_changes(before, {key: change})) != answers(before)


@pytest.mark.parametrize("key", REFUSED)
def test_or_is_refused_by_name(key: str) -> None:
    with pytest.raises(ScenarioError, match=key):
        with_changes(load(BASE), {key: REFUSED[key]})


def test_a_config_json_changes_the_answer(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 1024}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 512}))
    path = str(tmp_path / "config.json")
    changed = with_changes(load(BASE), {"model": {"hf_config": path}})
    assert answers(changed) != answers(load(BASE))
