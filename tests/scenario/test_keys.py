"""Keys that depend on one another: the mesh, batches, precision, versions, models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.dtypes import DType
from simulator.errors import ScenarioError
from simulator.lowering.lower import decoder_of
from simulator.model.families import WRITERS
from simulator.model.presets import PRESETS
from simulator.plan.precision import RECIPES
from simulator.plan.versions import RULES, Software, default_of
from simulator.scenario import Scenario, load
from simulator.scenario.json_schema import dotted_keys
from tests.scenario.conftest import TINY, FakeCatalogue, Load

_SINGLE = ("parallelism.framework=single", "cluster.gpus_per_node=1")


@pytest.mark.parametrize(
    ("sets", "mesh"),
    [
        ([], (1, 8)),
        (["parallelism.dp_replicate=2"], (2, 4)),
        (["parallelism.dp_shard=2"], (4, 2)),
        (["parallelism.dp_replicate=4", "parallelism.dp_shard=2"], (4, 2)),
        (["parallelism.dp_replicate=2", "cluster.nodes=3"], (2, 12)),
    ],
)
def test_the_dp_axis_left_out_fills_the_world(
    load_text: Load, sets: list[str], mesh: tuple[int, int]
) -> None:
    found = load_text(TINY, sets)
    assert (found.plan.parallelism.dp_replicate, found.plan.parallelism.dp_shard) == mesh
    given = [key.partition("=")[0] for key in sets]
    for axis in ("dp_replicate", "dp_shard"):
        if f"parallelism.{axis}" not in given and given != []:
            assert found.origins[f"parallelism.{axis}"][1] == "fills the world"


def test_axes_that_miss_the_world_are_a_mistake(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="2 × 8 are 16 of 8 GPUs; leave one of the two out"):
        load_text(TINY, ["parallelism.dp_replicate=2", "parallelism.dp_shard=8"])


def test_a_global_batch_gives_the_accumulation(load_text: Load) -> None:
    found = load_text(TINY, ["training.global_batch=64", "training.micro_batch=2"])
    assert found.plan.training.grad_accum == 4
    assert found.origins["training.grad_accum"] == ("4", "global_batch")
    assert load_text(TINY, ["training.grad_accum=4"]).resolved["training"]["global_batch"] == 32
    both = ["training.global_batch=64", "training.grad_accum=8"]
    assert load_text(TINY, both).plan.training.grad_accum == 8
    with pytest.raises(ScenarioError, match="= 1 × 8 ranks × 4 = 32; leave out one of the two"):
        load_text(TINY, ["training.global_batch=64", "training.grad_accum=4"])


@pytest.mark.parametrize(
    ("packing", "micro_batch", "mask"),
    [("packed", 2, "none"), ("padded", 1, "ones"), ("padded", 2, "padded"), ("full", 1, "padded")],
)
def test_what_is_padded_comes_with_a_mask(
    load_text: Load, packing: str, micro_batch: int, mask: str
) -> None:
    sets = [f"training.packing={packing}", f"training.micro_batch={micro_batch}"]
    assert load_text(TINY, ["model.style=hf", *sets]).plan.training.mask == mask
    if packing != "packed":
        with pytest.raises(ScenarioError, match="packing: torchtitan's modules take no mask"):
            load_text(TINY, sets)


def test_one_token_under_a_mask_has_no_grouped_heads(load_text: Load) -> None:
    sets = ["model.preset=qwen2.5-0.5b", "training.packing=full", "training.micro_batch=2"]
    assert load_text(TINY, [*sets, "training.seq_len=2"]).plan.training.mask == "padded"
    one = "training.seq_len=1"
    with pytest.raises(ScenarioError, match="seq_len: one token under a mask"):
        load_text(TINY, [*sets, one])
    for other in ("training.attention=eager", "training.packing=packed", "model.kv_heads=14"):
        load_text(TINY, [*sets, one, other])


def test_the_efficient_kernel_takes_no_grouped_heads(load_text: Load) -> None:
    sets = ["training.attention=efficient", "model.style=hf", "model.preset=llama-2-7b"]
    assert load_text(TINY, sets).model.attention == "efficient"
    with pytest.raises(ScenarioError, match="takes no grouped heads"):
        load_text(TINY, [*sets[:2], "model.preset=llama-3.1-8b"])
    with pytest.raises(ScenarioError, match="mpt has eager attention alone"):
        load_text(TINY, [*sets[:1], "model.preset=mpt-7b"])


def test_a_recipe_and_its_dtypes_mean_the_same(load_text: Load) -> None:
    for recipe, words in (
        ("fsdp-mixed", "{compute: bf16}"),
        ("fsdp-mixed", "{parameters: fp32, compute: bf16, gradients: fp32, reduce: fp32}"),
        ("pure-bf16", "{parameters: bf16, moments: bf16, master: null, fp8: null}"),
        ("autocast", "{autocast: true, loss_scaling: false}"),
    ):
        assert (
            load_text(TINY, [f"training.precision={words}"]).plan.training.precision
            == (RECIPES[recipe])
        )


def test_one_dtype_of_a_recipe_changes(load_text: Load) -> None:
    precision = load_text(TINY, ["training.precision.reduce=bf16"]).plan.training.precision
    assert precision.name == "by hand"
    assert (precision.compute, precision.reduce) == (DType.BF16, DType.BF16)
    both = ["training.precision=pure-bf16", "training.precision.reduce=fp32"]
    precision = load_text(TINY, both).plan.training.precision
    assert (precision.parameters, precision.reduce) == (DType.BF16, DType.FP32)


def test_versions_pick_defaults_and_say_so(load_text: Load) -> None:
    old = load_text(TINY, ["as_of=2024-12"])
    fsdp = old.plan.parallelism.fsdp
    assert (old.model.rms_norm, fsdp.wrap, fsdp.reshard_last_block) == ("composite", "block", False)
    assert old.origins["model.rms_norm"][1].startswith("before torch 2.9")
    assert load_text(TINY, ["as_of=2025-12"]).plan == load_text(TINY).plan
    named = load_text(TINY, ["as_of=2024-12", "software.torch=2.10"])
    assert named.software.torch == (2, 10)
    assert named.model.rms_norm == "fused"
    assert load_text(TINY, ["as_of=2024-12", "model.rms_norm=fused"]).model.rms_norm == "fused"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["parallelism.fsdp.wrap=torchtitan"], "several modules in one unit"),
        (["parallelism.fsdp.forward_prefetch=1"], "set_modules_to_forward_prefetch"),
    ],
)
@pytest.mark.parametrize("when", ["software.torch=2.4", "as_of=2024-08"])
def test_what_a_release_cannot_do_is_refused(
    load_text: Load, when: str, sets: list[str], words: str
) -> None:
    with pytest.raises(ScenarioError, match=f"asks for {words}, which came with torch 2.5"):
        load_text(TINY, [when, *sets])
    load_text(TINY, ["software.torch=2.5", *sets])


def test_what_a_release_does_that_is_not_simulated_is_said(load_text: Load) -> None:
    frozen = "training.fine_tuning={method: full, freeze: [embed]}"
    for torch, count in (("2.5", 3), ("2.7", 2), ("2.11", 1), ("2.12", 0), ("2.15", 1)):
        found = load_text(TINY, [f'software.torch="{torch}"', frozen]).warnings
        assert sum(text.startswith("software") for text in found) == count, found


@pytest.mark.parametrize("key", RULES)
def test_every_rule_is_of_a_key_and_of_both_sides(key: str) -> None:
    rule = RULES[key]
    assert key in dotted_keys()
    assert rule.before != rule.since
    release = Software(torch=rule.torch)
    assert default_of(key, release) == (rule.since, "default")
    assert default_of(key, Software(as_of="2023-01-01")) == (rule.before, f"before {rule.change}")


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["parallelism.fsdp.sync_every_micro_batch=false"], "one micro-batch a step"),
        (["parallelism.fsdp.reshard_after_backward=false", "training.grad_accum=2"], "but with"),
        (
            [
                "parallelism.fsdp.reshard_after_forward=false",
                "parallelism.fsdp.reshard_last_block=false",
            ],
            "no block is resharded",
        ),
        (["parallelism.fsdp.wrap=none", "parallelism.fsdp.forward_prefetch=1"], "no block is wr"),
        (["parallelism.fsdp.wrap=none", "parallelism.fsdp.reshard_after_forward=false"], "root"),
        (["training.activation_checkpointing.early_stop=false"], "nothing is recomputed"),
        (["training.activation_checkpointing.offload=true"], "nothing is checkpointed"),
        (
            ["training.activation_checkpointing={mode: selective-op, save: [aten.bmm]}"],
            "no block calls aten.bmm",
        ),
        (
            [
                "training.activation_checkpointing={mode: full, early_stop: false}",
                "training.compile=block",
            ],
            "the compiler computes again only",
        ),
        (["training.activation_checkpointing={mode: full, save: [aten.mm]}"], "selective-op"),
        (["training.activation_checkpointing.reentrant=true", *_SINGLE], "nothing is checkpointed"),
        (
            [
                "training.activation_checkpointing={mode: full, reentrant: true}",
                "training.activation_checkpointing.early_stop=false",
                *_SINGLE,
            ],
            "recomputes to the end",
        ),
        (["training.activation_checkpointing={mode: full, modules: [mlp]}"], "megatron-selective"),
        (["offload.parameters=host", "training.optimizer=sgd"], "the optimizer runs on the host"),
        (["training.optimizer={name: adamw, momentum: 0.5}"], "no part of what adamw holds"),
        (["training.optimizer={name: sgd, amsgrad: true}"], "no part of what sgd holds"),
        (["training.optimizer=adamw-4bit"], "compiled update holds for itself is not counted"),
        (["model.kv_expand=false"], "heads = kv_heads"),
        (["model={preset: mistral-7b, dropout: 0.1}"], "dropout in eager attention alone"),
        (["software.nccl=2.21"], "no rule of this version depends on it"),
        (["training.precision={compute: fp16}"], "fp16 needs a loss scaler"),
    ],
)
def test_a_setting_without_effect_is_warned_about(
    load_text: Load, sets: list[str], words: str
) -> None:
    (warning,) = load_text(TINY, sets).warnings
    assert words in warning
    assert load_text(TINY).warnings == ()


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["training.activation_checkpointing.mode=full"], "with framework: fsdp2"),
        ([*_SINGLE, "training.activation_checkpointing.mode=selective-op"], "mode: selective-op"),
        (
            [*_SINGLE, "training.activation_checkpointing={mode: full, offload: true}"],
            "with offload: true",
        ),
        (
            [*_SINGLE, "training.activation_checkpointing=full", "training.compile=block"],
            "compile: block",
        ),
    ],
)
def test_a_reentrant_checkpoint_is_of_whole_blocks(
    load_text: Load, sets: list[str], words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        load_text(TINY, [*sets, "training.activation_checkpointing.reentrant=true"])


def test_flash_attns_own_kernel_needs_no_mask_for_a_window(load_text: Load) -> None:
    """Mistral's window of 4,096: sdpa is given a mask and a bias, flash_attention_2 neither."""
    sets = [*_SINGLE, "model=mistral-7b", "training={seq_len: 4096, micro_batch: 1}"]
    sets.append("training.precision=pure-bf16")

    def kept(*more: str) -> int:
        found = load_text(TINY, [*sets, *more])
        return decoder_of(found.model, found.plan).blocks[0].saved_bytes()

    window = kept("training.attention=flash-2")
    assert window == kept("training.attention=flash", "training.seq_len=4095") * 4096 // 4095
    assert kept("training.attention=flash") > window
    for more, words in (
        (["training.packing=full"], "flash-2 with padding"),
        (["training.precision=fp32"], "flash attention computes in 16 bits"),
        (["model=llama-2-7b", "model.style=torchtitan"], "no flash-2 attention"),
    ):
        with pytest.raises(ScenarioError, match=words):
            load_text(TINY, [*sets, "training.attention=flash-2", *more])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("training.clip_grad_norm=1.0", "leaves no gradients to clip"),
        ("training.precision={compute: fp16, loss_scaling: true}", "no gradients to unscale"),
        ("training.grad_accum=2", "steps after every micro-batch, and grad_accum is 2"),
    ],
)
def test_an_optimizer_in_backward_leaves_no_gradients(
    load_text: Load, other: str, words: str
) -> None:
    asked = "training.optimizer={name: adamw, in_backward: true}"
    assert load_text(TINY, [asked]).plan.training.optimizer_in_backward
    with pytest.raises(ScenarioError, match=words):
        load_text(TINY, [asked, other])


@pytest.mark.parametrize(
    ("short", "name", "way"),
    [
        ("adam", "adam", "foreach"),
        ("adam-for-loop", "adam", "for-loop"),
        ("muon-fused", "muon", "fused"),
        ("adamw-fp8", "adamw-fp8", "fused"),
    ],
)
def test_short_forms_of_optimizers(load_text: Load, short: str, name: str, way: str) -> None:
    training = load_text(TINY, [f"training.optimizer={short}"]).plan.training
    assert training.optimizer_choice == (name, way)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_scenario_with_its_defaults(preset: str, fake: FakeCatalogue) -> None:
    found = load({**MAPPING, "model": preset}, catalogue=fake)
    assert (found.model.family, found.model.style) in WRITERS
    assert found.plan.parallelism.fsdp.wrap == ("block" if found.model.tied else "torchtitan")
    again = load(found.resolved, catalogue=fake)
    assert (again.model, again.plan) == (found.model, found.plan)


MAPPING = {
    "cluster": {"topology": "dgx-a100"},
    "parallelism": {"framework": "fsdp2"},
    "training": {"seq_len": 512, "micro_batch": 1},
}


def test_what_a_models_modules_can_do(load_text: Load) -> None:
    def refused(*sets: str) -> str:
        with pytest.raises(ScenarioError) as caught:
            load_text(TINY, sets)
        return str(caught.value)

    assert "supported: block, none" in refused("model=gpt2", "parallelism.fsdp.wrap=torchtitan")
    assert "gpt2 has 1024 positions" in refused("model=gpt2", "training.seq_len=2048")
    assert "supported: eager" in refused("model=mpt-7b", "training.attention=flash")
    wide = load_text(TINY, ["model=mistral-7b", "training.precision=autocast"]).plan.training
    assert (wide.precision.compute, wide.precision.autocast) == (DType.FP32, DType.BF16)
    assert "supported for routed experts" in refused(
        "model=mixtral-8x7b", "training.precision=autocast"
    )
    eager = load_text(TINY, ["model=mistral-7b", "training.attention=eager"])
    assert (eager.model.attention, eager.plan.training.attention) == ("eager", "eager")
    assert load_text(TINY, ["model=gemma-2-9b"]).plan.training.attention == "eager"
    dropped = load_text(TINY, ["model=gpt2", "model.dropout=0.5"]).model
    assert (dropped.dropout, dropped.embedding_dropout) == (0.5, 0.5)
    wide = load_text(TINY, ["model=gpt2", "model.heads=16"]).model
    assert (wide.kv_heads, wide.head_dim) == (16, 48)


CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


@pytest.fixture
def from_config(tmp_path: Path, load_text: Load):
    def call(text: str, *sets: str) -> Scenario:
        (tmp_path / "config.json").write_text(text)
        return load_text(TINY.replace("llama-2-7b", "{hf_config: config.json}"), sets)

    return call


def test_a_config_json_is_a_model(from_config, tmp_path: Path) -> None:
    found = from_config(json.dumps(CONFIG), "model.layers=3")
    assert (found.model.style, found.model.layers, found.model.vocab) == ("hf", 3, 1000)
    assert found.origins["model.hidden"] == ("256", "config.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"config.json:1:2: is no JSON"),
        ("[]", "expected a map of keys"),
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ('{"a": NaN}', "NaN is no number"),
        ("[" * 100_000, "nested too deep"),
        ('{"model_type": "lama"}', "did you mean 'llama'?"),
        ('{"model_type": "llama"}', "lacks "),
        (json.dumps({**CONFIG, "hidden_size": "wide"}), "hidden_size: 'wide'"),
        (json.dumps({**CONFIG, "hidden_size": {}}), "hidden_size: {}"),
        (json.dumps({**CONFIG, "num_hidden_layers": 0}), "layers"),
        (json.dumps({**CONFIG, "vocab_size": 10**30}), "vocab"),
    ],
)
def test_a_config_json_that_is_wrong_is_named(from_config, text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        from_config(text)
    assert "model.hf_config: " in str(caught.value)
    assert words in str(caught.value)


def test_a_config_json_that_is_not_there(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match=r"cannot read .*none\.json: no such file"):
        load_text(TINY.replace("llama-2-7b", "{hf_config: none.json}"))


def test_torchtitan_of_mid_2024_casts_and_keeps_its_logits(load_text: Load) -> None:
    then = load_text(TINY, ["as_of=2024-05"]).plan.training
    assert (then.loss, then.model_upcasts) == ("eager-kept-logits", True)
    now = load_text(TINY, ["training.loss={chunked-head: 8}"]).plan.training
    assert (now.loss, now.loss_chunks, now.model_upcasts) == ("chunked-head", 8, False)
    liger = ["training.loss=fused-linear"]
    assert load_text(TINY, [*liger, "as_of=2025-12"]).plan.training.fused_linear_sums_apart
    assert not load_text(TINY, liger).plan.training.fused_linear_sums_apart
