from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import ScenarioError
from simulator.scenario import Scenario
from simulator.scenario.contract import HARMLESS
from simulator.scenario.schema import TOP, section_paths
from tests.scenario.conftest import TINY, Load

HONOURED: dict[str, Any] = {
    "name": "other",
    "as_of": "2024-12",
    "software.torch": "2.6",
    "software.transformers": "4.48",
    "software.nccl": "2.21",
    "software.deepspeed": "0.16",
    "software.megatron": "0.11",
    "software.bitsandbytes": "0.45",
    "model.preset": "llama-2-13b",
    "model.hf_config": None,  # in place of a preset: test_hf_file.py
    "model.layers": 2,
    "model.hidden": 8192,
    "model.ffn": 1024,
    "model.heads": 64,
    "model.kv_heads": 8,
    "model.vocab": 1024,
    "model.head_dim": 64,
    "model.experts": None,  # of a mixture alone: test_mixtures.py
    "model.experts_per_token": None,
    "model.expert_ffn": None,
    "model.experts_implementation": None,
    "model.shared_ffn": None,
    "model.dense_layers": None,
    "model.expert_groups": None,
    "model.topk_groups": None,
    "model.q_rank": None,
    "model.kv_rank": None,
    "model.rope_head_dim": None,
    "model.v_head_dim": None,
    "model.window": None,
    "model.style": "hf",
    "model.rms_norm": "composite",
    "model.kv_expand": "false",
    "model.dropout": None,  # torchtitan's modules have none: test_models.py
    "cluster.topology": "dgx-h100",
    "cluster.nodes": 2,
    "cluster.gpus_per_node": 4,
    "cluster.gpu": "h200-sxm",
    "cluster.reserved": "2 GiB",
    "parallelism.framework": "fsdp1",
    "parallelism.dp_replicate": 2,
    "parallelism.dp_shard": 4,
    "parallelism.fsdp.wrap": "block",
    "parallelism.fsdp.reshard_after_forward": "false",
    "parallelism.fsdp.reshard_last_block": "false",
    "parallelism.fsdp.reshard_after_backward": "false",
    "parallelism.fsdp.sync_every_micro_batch": "false",
    "parallelism.fsdp.forward_prefetch": 2,
    "parallelism.fsdp.backward_prefetch": "post",
    "parallelism.fsdp.limit_all_gathers": "false",
    "parallelism.fsdp.use_orig_params": "false",
    "parallelism.ddp.bucket_cap": "100 MiB",
    "parallelism.ddp.gradient_as_bucket_view": "true",
    "parallelism.zero.stage": 2,
    "parallelism.zero.overlap_comm": "true",
    "parallelism.zero.contiguous_gradients": "false",
    "parallelism.zero.reduce_scatter": "false",
    "parallelism.zero.round_robin_gradients": "true",
    "parallelism.zero.reduce_bucket_size": 200_000,
    "parallelism.zero.allgather_bucket_size": 200_000_000,
    "parallelism.zero.stage3_prefetch_bucket_size": 0,
    "parallelism.zero.stage3_param_persistence_threshold": "auto",
    "parallelism.zero.stage3_max_live_parameters": 1_000_000,
    "parallelism.zero.stage3_max_reuse_distance": 0,
    "parallelism.zero.stage3_allgather_sequential": "true",
    "parallelism.zero.sub_group_size": 1_000_000,
    "parallelism.zero.built_on": "cpu",
    "training.seq_len": 1024,
    "training.micro_batch": 2,
    "training.grad_accum": 2,
    "training.global_batch": 16,
    "training.precision": "pure-bf16",
    "training.optimizer.name": "sgd",
    "training.optimizer.implementation": "fused",
    "training.optimizer.in_backward": "true",
    "training.optimizer.weight_decay": 0,
    "training.optimizer.momentum": 0,
    "training.optimizer.amsgrad": "true",
    "training.clip_grad_norm": 1.0,
    "training.activation_checkpointing.mode": "full",
    "training.activation_checkpointing.early_stop": "false",
    "training.activation_checkpointing.offload": "true",
    "training.activation_checkpointing.reentrant": None,  # not under fsdp2: test_fine_tuning.py
    "training.activation_checkpointing.save": "[aten.mm]",
    "training.activation_checkpointing.modules": "[mlp]",
    "training.fine_tuning.method": "lora",
    "training.fine_tuning.rank": 8,
    "training.fine_tuning.targets": ["k"],
    "training.fine_tuning.dropout": 0.1,
    "training.fine_tuning.adapters": "bf16",
    "training.fine_tuning.dora": "true",
    "training.fine_tuning.rank_stabilized": "true",
    "training.fine_tuning.norms": None,  # beside bf16 under autocast: test_fine_tuning.py
    "training.fine_tuning.base": "nf4",
    "training.fine_tuning.double_quant": "false",
    "training.fine_tuning.also_train": ["head"],
    "training.fine_tuning.freeze": ["embed"],
    "training.packing": None,  # of style hf alone: test_what_is_padded_comes_with_a_mask
    "training.attention": None,  # torchtitan's modules have one: test_models.py
    "training.compile": "block",
    "training.loss": "fused-linear",
    "offload.parameters": "host",
    "offload.gradients": None,  # as parameters or refused: test_offload_is_all_or_nothing
    "offload.optimizer": None,
    "expect.fits": "true",
    "expect.peak_allocated": "'<= 76 GiB'",
    "expect.peak_reserved": "'<= 76 GiB'",
    "expect.step_time": "'< 3 s'",
    "expect.mfu": "'>= 0.38'",
    "expect.tokens_per_s_per_gpu": "'> 5000'",
    "measured.peak_allocated": "67 GiB",
    "measured.peak_active": "67 GiB",
    "measured.peak_reserved": "67 GiB",
    "measured.peak_device": "67 GiB",
    "measured.host_peak": "67 GiB",
    "measured.of": "last",
    "measured.tokens_per_s_per_gpu": 5605,
    "measured.step_time": "2.92 s",
    "measured.fits": "true",
    "measured.trust": "C",
    "measured.source": "a log",
    "what_if": "[{name: twice, set: {training.micro_batch: 2}}]",
}
"""Every honoured key with a value that is not its default."""


def test_every_honoured_key_is_held_here() -> None:
    keys = {
        ".".join((*path, key))
        for path, section in section_paths().items()
        for key in section.model_fields
        if (*path, key) not in section_paths()
    }
    assert set(HONOURED) == keys | {*TOP, "what_if"} - {"extends"}


def seen(scenario: Scenario) -> tuple[object, ...]:
    return (
        scenario.name,
        scenario.model,
        scenario.cluster,
        scenario.plan,
        scenario.expect,
        scenario.measured,
        scenario.what_if,
        scenario.warnings,
    )


@pytest.mark.parametrize("key", [key for key, value in HONOURED.items() if value is not None])
def test_no_honoured_key_is_dead(load_text: Load, key: str) -> None:
    text = TINY + "measured: {fits: false}\n"
    assert seen(load_text(text, [f"{key}={HONOURED[key]}"])) != seen(load_text(text))


def as_yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("key", HARMLESS)
def test_a_key_for_later_is_accepted_where_it_asks_for_nothing(load_text: Load, key: str) -> None:
    for value in ("null", *map(as_yaml, HARMLESS[key])):
        assert seen(load_text(TINY, [f"{key}={value}"])) == seen(load_text(TINY))


@pytest.mark.parametrize("key", HARMLESS)
@pytest.mark.parametrize("value", ["8", "something", "{a: 1}", "[1]"])
def test_a_key_for_later_is_refused_by_name(load_text: Load, key: str, value: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, [f"{key}={value}"])
    assert f"{key}: not yet supported in this version: {key}" in str(caught.value)


def test_true_is_no_one(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="not yet supported"):
        load_text(TINY, ["parallelism.tp=true"])


def test_the_refusal_says_what_was_found_and_where(load_text: Load) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY + "offload: {activations: host}\n")
    assert str(caught.value).endswith(
        "s.yaml:6:11: offload.activations: not yet supported in this version: "
        "offload.activations = host; allowed: none, or leave it out"
    )


def test_unknown_keys_among_those_for_later(load_text: Load) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, ["parallelism.pipeline.shedule=1f1b", "parallelism.experts=2.6"])
    said = str(caught.value)
    assert "parallelism.pipeline.shedule: unknown key; did you mean 'schedule'?" in said
    assert "parallelism.experts: not yet supported in this version; expected a map of" in said


def test_offload_is_all_or_nothing(load_text: Load) -> None:
    host = ["offload.parameters=host"]
    alone = load_text(TINY, host)
    assert alone.plan.offload_parameters
    assert alone.resolved["offload"] == dict.fromkeys(
        ("parameters", "gradients", "optimizer"), "host"
    )
    assert load_text(TINY, [*host, "offload.gradients=host"]).plan == alone.plan
    for rest in ("gradients", "optimizer"):
        with pytest.raises(ScenarioError, match="together; expected host"):
            load_text(TINY, [*host, f"offload.{rest}=none"])
