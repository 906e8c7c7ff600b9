from __future__ import annotations

import pickle

import pytest

from simulator.errors import ScenarioError, UnknownNameError, UserError
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
        "supported: none, full, selective-op",
    ]


def test_what_is_missing_is_named(load_text: Load) -> None:
    assert refusal(load_text, "name: x\ntraining: {seq_len: 8}\n") == [
        "1:1: model: is missing; it needs preset",
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
        ("parallelism.framework=ddp", "not yet supported in this version"),
        ("parallelism.fsdp.reshard_after_forward=on", "write it as true or false"),
        ("parallelism.fsdp.reshard_after_forward=2", "expected true or false, found 2"),
        ("training.seq_len=8:1", "60-based"),
        ("training.seq_len={lognormal: {}}", "not yet supported in this version: training.seq_len"),
        ("training.seq_len=99999999999", "from 1 to 16,777,216"),
        ("training.precision=fp32", "not yet supported in this version: training.precision"),
        ("training.precision={compute: bf16}", "not yet supported in this version"),
        ("training.precision=fsdp_mixed", "did you mean 'fsdp-mixed'?"),
        ("training.clip_grad_norm=0", "above 0"),
        ("training.loss={chunked: 8}", "not yet supported in this version: training.loss"),
        ("training.optimizer=adam-w", "did you mean 'adamw'?"),
        ("training.optimizer=adamw-8bit", "not yet supported in this version"),
        ("model.kv_heads=7", "heads = 32 is not a multiple of kv_heads = 7"),
        ("model.heads=48", "heads = 48 is not a multiple of kv_heads = 32"),
        ("model.hidden=4100", "hidden = 4100 is no multiple of heads = 32; set head_dim"),
        ("model.head_dim=127", "odd"),
        ("name={}", "name: expected text, found a map"),
        ("expect.peak_reserved=76 GiB", "no comparison"),
        ("expect.mfu='>= high'", "no plain number"),
        ("measured.peak_reserved=67", "unit is missing"),
        ("measured.of=first", "expected max, last or a rank"),
    ],
)
def test_each_mistake_says_what_is_allowed(load_text: Load, change: str, words: str) -> None:
    found = one(load_text, change)
    assert words in found
    assert found.startswith("flag --set: ")


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
