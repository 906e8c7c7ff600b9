from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from simulator.errors import ScenarioError, UnknownNameError, UserError
from simulator.hardware.topologies import MAX_NODES
from simulator.run import run
from simulator.scenario import load
from simulator.scenario.json_schema import scenario_schema
from tests.scenario.conftest import TINY, Load

FIVE = """\
name: five mistakes
model: llama-2-7
cluster: {topology: dgx-a100, nodes: 1, reserved: 80 G}
parallelism:
  framework: fsdp2
  dp_sard: 8
training:
  seq_len: 4096
  micro_batch: 0
  precision: fsdp-mixed
  activation_checkpointing: on
"""


def refusal(load_text: Load, text: str, *sets: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_text(text, sets)
    return [line.partition("s.yaml:")[2] or line for line in str(caught.value).splitlines()]


def one(load_text: Load, *sets: str) -> str:
    (line,) = refusal(load_text, TINY, *sets)
    return line


def test_five_mistakes_are_five_lines_each_with_its_place(load_text: Load) -> None:
    assert refusal(load_text, FIVE) == [
        "2:8: model.preset: unknown model 'llama-2-7'; did you mean 'llama-2-7b'?",
        "3:51: cluster.reserved: '80 G' is no size: 'G' is ambiguous; "
        "write GB (decimal) or GiB (binary)",
        "6:3: parallelism.dp_sard: unknown key; did you mean 'dp_shard'?",
        "9:16: training.micro_batch: expected a whole number from 1 to 65,536, found 0",
        "11:29: training.activation_checkpointing.mode: unknown value 'on'; "
        "supported: none, full, selective-op, megatron-selective, every-2 to every-128",
    ]


def test_what_is_missing_is_named(load_text: Load) -> None:
    assert refusal(load_text, "name: x\ntraining: {seq_len: 8}\n") == [
        "1:1: model: is missing; it needs preset or hf_config",
        "1:1: cluster: is missing; it needs topology",
        "1:1: parallelism: is missing; it needs framework",
        "2:11: training.micro_batch: is missing",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("trainin={}", "trainin: unknown key; did you mean 'training'?"),
        ("training=5", "training: expected a map of seq_len"),
        ("training=[]", "found a list"),
        ("cluster.topology=dgx-h10", "unknown topology 'dgx-h10'; did you mean 'dgx-"),
        ("cluster.gpu=h20-sxm", "unknown gpu 'h20-sxm'; did you mean 'h200-sxm'?"),
        ("cluster.nodes=1e9", "expected a whole number"),
        ("cluster.nodes=2.0", "write 2"),
        ("cluster.nodes=1_000", "digits alone"),
        ("cluster.nodes=true", "found True"),
        ("cluster.gpus_per_node=9", "at most 8, what a node of dgx-a100 has, found 9"),
        ("cluster.reserved=0", "unit is missing"),
        ("parallelism.dp_shard=16", "found 16, but the cluster has 8 GPUs"),
        ("parallelism.framework=fdsp2", "did you mean 'fsdp2'?"),
        ("parallelism.framework=megatron", "not yet supported in this version"),
        ("parallelism.fsdp.reshard_after_forward=on", "write it as true or false"),
        ("parallelism.fsdp.reshard_after_forward=0", "a whole number from 1, found 0"),
        ("parallelism.fsdp.reshard_after_forward=3", "allowed: true, false, 1, 2, 4, 8"),
        ("parallelism.fsdp.reshard_after_forward=16", "does not divide dp_shard = 8"),
        ("parallelism.fsdp.wrap=blocks", "did you mean 'block'?"),
        ("parallelism.fsdp.wrap=[layer.*]", "did you mean 'layers.*'?"),
        ("parallelism.fsdp.wrap=[]", "a list of module patterns"),
        ("parallelism.dp_shard=3", "found 3, but the cluster has 8 GPUs, which are no multiple"),
        ("parallelism.dp_replicate=16", "found 16, but the cluster has 8 GPUs"),
        ("training.seq_len=8:1", "60-based"),
        ("training.seq_len={lognormal: {}}", "not yet supported in this version: training.seq_len"),
        ("training.seq_len=99999999999", "from 1 to 16,777,216"),
        ("training.precision=fp32", "flash attention computes in 16 bits; the nearest that"),
        ("training.precision={compute: bf61}", "training.precision.compute: expected one of fp32"),
        ("training.precision={compute: fp8}", "are asked for by fp8: tensorwise"),
        ("training.precision={compte: bf16}", "unknown key; did you mean 'compute'?"),
        ("training.precision={compute: bf16, moments: bf16}", "allowed: fp32, or leave it out"),
        ("training.precision={compute: bf16, gradients: bf16}", "allowed: fp32, or leave it out"),
        ("training.precision={parameters: bf16, master: fp32}", "keeps no master copy"),
        ("training.precision={compute: bf16, autocast: true}", "nothing to cast"),
        ("training.precision={parameters: fp16, loss_scaling: true}", "GradScaler refuses"),
        (
            "training.precision={compute: bf16, fp8: rowwise}",
            "set compile: block, or use tensorwise",
        ),
        ("training.precision={fp8: te-delayed}", "not yet supported; the nearest is tensorwise"),
        ("training.precision={fp8: mxfp8}", "a scale for each block are not yet supported"),
        ("training.precision={compute: bf16, fp8: tensorwide}", "did you mean 'tensorwise'?"),
        ("training.attention=eager", "torchtitan's modules have no eager attention"),
        ("training.attention=math", "not yet supported in this version"),
        ("training.global_batch=12", "found 12, which is no multiple of micro_batch × ranks"),
        ("training.optimizer.implementation=loop", "did you mean 'for-loop'?"),
        (
            "training.optimizer={name: sgd, implementation: fused}",
            "nearest that it can: sgd foreach",
        ),
        ("training.optimizer={name: lion, implementation: foreach}", "supported: fused"),
        ("model={layers: 2}", "model: it needs either preset or hf_config"),
        ("model.hf_config=config.json", "either preset or hf_config, not both"),
        ("model.style=hff", "did you mean 'hf'?"),
        ("model.dropout=0.1", "torchtitan's modules have no dropout"),
        ("model={preset: mistral-7b, style: torchtitan}", "supported: hf"),
        ("model={preset: mistral-7b, rms_norm: fused}", "has no effect in style hf"),
        ("model={preset: gpt2, kv_heads: 4}", "gpt2 has no grouped heads"),
        ("model={preset: llama-3.2-1b, style: torchtitan}", "ties its head to its embedding"),
        ("offload.parameters=nvme", "not yet supported in this version"),
        ("offload.gradients=host", "offloads parameters, gradients and optimizer together"),
        ("as_of=2025", "expected a date as 2025-03"),
        ("as_of=2025-13", "expected a date as 2025-03"),
        ("software.torch=new", 'expected a version as "2.6"'),
        ("software.torch=1.13", "fsdp2 came with torch 2.4"),
        ("software.tourch='2.6'", "unknown key; did you mean 'torch'?"),
        ("extends=llama2-7b-fsdp2-8xa100", "belongs in a file"),
        ("what_if={}", "expected a list of {name, set}"),
        ("what_if=[{name: slow, rank: 3, compute: 0.5}]", "what_if by rank; supported: set"),
        ("what_if=[{name: slow}]", "expected a map of dotted keys"),
        ("training.precision=fsdp_mixed", "did you mean 'fsdp-mixed'?"),
        ("training.clip_grad_norm=0", "above 0"),
        ("training.loss={chunked: 0}", "expected a whole number from 1 to 65,536, found 0"),
        ("training.loss={chunky: 8}", "did you mean 'chunked'?"),
        ("training.loss=chunked-head", "write {chunked-head: 8}"),
        ("training.loss=fused_linear", "did you mean 'fused-linear'?"),
        ("training.loss=[eager]", "expected a name or one of the maps, found a list"),
        ("training.optimizer=adam-w", "did you mean 'adamw'?"),
        ("training.optimizer=adamw-8bit", "fsdp2 cannot run adamw-8bit fused: DTensor has no rule"),
        ("model.kv_heads=7", "heads = 32 is not a multiple of kv_heads = 7"),
        ("model.heads=48", "heads = 48 is not a multiple of kv_heads = 32"),
        ("model.hidden=4100", "hidden = 4100 is no multiple of heads = 32; set head_dim"),
        ("model.head_dim=127", "odd"),
        ("name={}", "name: expected text, found a map"),
        ("expect.peak_reserved=76 GiB", "no comparison"),
        ("expect.mfu='>= high'", "no plain number"),
        ("measured.peak_reserved=67", "unit is missing"),
        ("measured.of=first", "expected max, last or a rank"),
        ("measured.of=99", "measured.of: found rank 99, but the job has ranks 0 to 7"),
        ("measured.step_time=0 s", "measured.step_time: expected more than 0, found '0 s'"),
        ("measured.peak_allocated=0 GiB", "measured.peak_allocated: expected more than 0"),
        ("measured.step_time=1e400 s", "out of range: too large for a time"),
        ("expect.mfu='>= 1e400'", "out of range"),
        ("expect.step_time='<= 1e999 s'", "out of range: too large for a time"),
        ("cluster.reserved=80 GiB", "reserved: found 80.00 GiB, but each GPU has 80.00 GiB in all"),
        ("cluster.nodes=70000", "nodes: expected a whole number from 1 to 65,536, found 70000"),
        ("training.micro_batch=010", "micro_batch: '010' has a leading zero"),
        ("training={seq_len: 8, micro_batch: 010}", "training.micro_batch: '010' has a leading"),
    ],
)
def test_each_mistake_says_what_is_allowed(load_text: Load, change: str, words: str) -> None:
    found = one(load_text, change)
    assert words in found
    assert found.startswith("flag --set: ")


def test_a_chunked_loss_of_transformers_needs_its_head_in_the_root(load_text: Load) -> None:
    sets = ["training.loss={chunked: 8}", "model.style=hf"]
    load_text(TINY, [*sets, "parallelism.fsdp.wrap=block"])
    with pytest.raises(ScenarioError, match=r"training\.loss: .*fsdp\.wrap: block"):
        load_text(TINY, [*sets, "parallelism.fsdp.wrap=torchtitan"])


HUGE = {"model.layers": 10_000, "model.hidden": 524_288, "model.heads": 8_192}


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (
            ["training.micro_batch=65536", "training.seq_len=16777216"],
            "65,536 × 16,777,216 tokens pass the limit of 2,147,483,648 a rank",
        ),
        ([f"{key}={value}" for key, value in HUGE.items()], "parameters, where 1e+14 is the limit"),
        (
            ["training.seq_len=16777216", "model.layers=10000"],
            "training.micro_batch: is too large: micro_batch × seq_len = 1 × 16,777,216",
        ),
        (
            ["training.seq_len=16777216", "training.grad_accum=65536"],
            "16,777,216 tokens, 65,536 times, would take months",
        ),
    ],
)
def test_what_is_too_large_to_simulate_is_said(
    load_text: Load, sets: list[str], words: str
) -> None:
    found = one(load_text, *sets)
    assert "is too large" in found
    assert words in found


def test_the_door_and_the_builders_have_one_limit_of_nodes() -> None:
    limits = scenario_schema()["properties"]["cluster"]  # a name, or a map
    assert f"'maximum': {MAX_NODES}" in str(limits)


@pytest.mark.parametrize(
    ("recipe", "size"), [("bf16-mixed-master", 16), ("bf16-no-master", 12), ("megatron-bf16", 18)]
)
def test_a_recipe_fsdp2_cannot_run_names_the_nearest(
    load_text: Load, recipe: str, size: int
) -> None:
    assert one(load_text, f"training.precision={recipe}") == (
        f"flag --set: training.precision: fsdp2 cannot run '{recipe}' ({size} B/param); "
        "the nearest that it can is 'fsdp-mixed' (16 B/param)"
    )


def test_checks_between_keys_do_not_wait_for_other_mistakes(load_text: Load) -> None:
    found = refusal(load_text, TINY, "model.kv_heads=7", "training.micro_batch=0")
    assert len(found) == 2


def test_a_flood_of_mistakes_is_cut(load_text: Load) -> None:
    flood = "".join(f"x{number}: 1\n" for number in range(5000))
    found = refusal(load_text, TINY + flood)
    assert len(found) == 101
    assert "100 mistakes or more" in found[0]


def test_keys_and_values_are_safe_to_print(load_text: Load) -> None:
    text = TINY + '"\\e[31mred": 1\nname: "\\e[31m"\n'
    with pytest.raises(ScenarioError) as caught:
        load_text(text)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


def test_errors_cross_process_borders(load_text: Load) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(FIVE)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    unknown = UnknownNameError("model", "llama", ["llama-2-7b"])
    assert str(pickle.loads(pickle.dumps(unknown))) == str(unknown)


def test_mistakes_are_the_users(load_text: Load) -> None:
    assert issubclass(ScenarioError, UserError)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.optimizer=AdamW", "did you mean 'adamw'?"),
        ("training.activation_checkpointing=every-1", "every block is full"),
        ("training.precision=bf16-mixd", "supported under fsdp2: "),
        ("parallelism.fsdp.wrap=[outputs]", "gets no unit of its own"),
        ("as_of=2024-02-30", "2024-02-30 is no day of the calendar"),
        ("training.attention=flash", "gpt_oss has eager attention alone; supported: eager"),
    ],
)
def test_what_is_nearest_can_be_had(load_text: Load, setting: str, words: str) -> None:
    model = ["model=gpt-oss-20b"] if "attention" in setting else []
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, [*model, setting])
    assert words in str(caught.value)
    assert "'bf16-mixed-master'" not in str(caught.value)


def test_one_axis_is_blamed_for_what_it_says(load_text: Load) -> None:
    sets = ["parallelism.framework=ddp", "parallelism.dp_replicate=3"]
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, sets)
    assert [each.key for each in caught.value.mistakes] == ["parallelism.dp_replicate"]


def test_a_wrong_extends_hides_no_other_mistake(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("extends: {}\ntraining: {seq_len: -1, micro_batch: 1}\n")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert {each.key for each in caught.value.mistakes} == {"extends", "training.seq_len"}


def test_what_if_is_held_against_the_schema_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    entries = "[{set: {training.micro_bach: 2}}, {set: {training.seq_len: 0}}, {set: {a..b: 1}}]"
    path.write_text(f"{TINY}what_if: {entries}\nexpect: {{fit: true}}\n")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    found = {each.key: each.line for each in caught.value.mistakes}
    assert found == {
        "expect.fit": 7,
        "what_if[0].set: training.micro_bach": 6,
        "what_if[1].set: training.seq_len": 6,
        "what_if[2].set": 6,
    }


def test_an_error_of_the_lowering_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    text = TINY.replace(
        "{framework: fsdp2}", "{framework: fsdp2, fsdp: {reshard_after_forward: 2}}"
    )
    freezing = "micro_batch: 1, fine_tuning: {freeze: [embed, layers.0]}}"
    path.write_text(text.replace("micro_batch: 1}", freezing))
    with pytest.raises(ScenarioError, match=r"s\.yaml:4:.*fsdp\.reshard_after_forward: 2 is not"):
        run(load(path))
