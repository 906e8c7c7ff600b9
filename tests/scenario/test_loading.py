from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.data import data_dir, data_names
from simulator.dtypes import DType
from simulator.errors import ScenarioError, UserError
from simulator.model.presets import PRESETS
from simulator.plan.precision import RECIPES
from simulator.scenario import ClusterSpec, Scenario, load, with_changes
from simulator.scenario.bounds import Bound, Expect
from tests.scenario.conftest import TINY, FakeCatalogue, Load


@pytest.mark.parametrize("name", data_names("scenarios"))
def test_every_packaged_scenario_resolves(name: str, fake: FakeCatalogue) -> None:
    scenario = load(name, catalogue=fake)
    assert scenario.plan.parallelism.world_size == 8 * scenario.cluster.nodes
    first = (data_dir("scenarios") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"


def test_the_7b_scenario(fake: FakeCatalogue) -> None:
    scenario = load("llama2-7b-fsdp2-8xa100", catalogue=fake)
    training = scenario.plan.training
    assert scenario.model == PRESETS["llama-2-7b"]
    assert scenario.cluster == ClusterSpec(topology="dgx-a100", nodes=1)
    assert scenario.plan.parallelism.dp_shard == 8
    assert (training.seq_len, training.micro_batch, training.tokens) == (4096, 2, 8192)
    assert (training.optimizer, training.optimizer_implementation) == ("adamw", "fused")
    assert training.activation_checkpointing == "selective-op"
    assert training.precision == RECIPES["fsdp-mixed"]
    assert training.precision.compute is DType.BF16


def test_the_measured_scenarios_keep_what_was_measured(fake: FakeCatalogue) -> None:
    small = load("llama3-8b-fsdp2-8xh100", catalogue=fake)
    large = load("llama3-8b-fsdp2-128xh100", catalogue=fake)
    assert small.measured is not None
    assert large.measured is not None
    assert small.measured.peak_reserved == round(82.4 * 2**30)
    assert small.measured.tokens_per_s_per_gpu == 5762
    assert large.measured.peak_reserved == 67 * 2**30
    assert large.plan.parallelism.dp_shard == 128
    assert not large.plan.parallelism.fsdp.reshard_last_block


def test_short_and_long_forms_mean_the_same(load_text: Load) -> None:
    short = load_text(
        TINY, ["training.optimizer=adamw-fused", "training.activation_checkpointing=full"]
    )
    long = load_text(
        TINY,
        [
            "training.optimizer={name: adamw, implementation: fused, in_backward: false}",
            "training.activation_checkpointing={mode: full, early_stop: true, offload: false}",
            "model={preset: llama-2-7b, dropout: 0}",
        ],
    )
    assert (short.model, short.plan) == (long.model, long.plan)


def test_a_change_reaches_into_a_short_form(load_text: Load) -> None:
    scenario = load_text(
        TINY.replace("micro_batch: 1", "micro_batch: 1, optimizer: adamw-fused"),
        ["training.optimizer.implementation=foreach", "model.layers=2"],
    )
    assert scenario.plan.training.optimizer_implementation == "foreach"
    assert (scenario.model.layers, scenario.model.hidden) == (2, 4096)


def test_overridden_heads_keep_head_dim_as_hidden_over_heads(load_text: Load) -> None:
    model = load_text(TINY, ["model.hidden=512", "model.heads=8", "model.kv_heads=8"]).model
    assert model.head_dim == 64
    model = load_text(TINY, ["model.hidden=500", "model.head_dim=128"]).model
    assert model.head_dim == 128


def test_expectations_are_comparisons(load_text: Load) -> None:
    text = TINY + 'expect: {fits: true, peak_reserved: "<= 76 GiB", step_time: "<3 s"}\n'
    expect = load_text(text).expect
    assert expect == Expect(
        fits=True,
        peak_reserved=Bound(comparison="<=", value=76 * 2**30, text="<= 76 GiB"),
        step_time=Bound(comparison="<", value=3.0, text="<3 s"),
    )
    assert expect.peak_reserved is not None
    assert expect.peak_reserved.holds(76 * 2**30)
    assert not expect.peak_reserved.holds(76 * 2**30 + 1)


def test_every_value_says_where_it_comes_from(load_text: Load, tmp_path: Path) -> None:
    scenario = load_text(TINY, ["training.micro_batch=4"])
    file = tmp_path / "s.yaml"
    assert scenario.origins["training.seq_len"] == ("512", f"{file}:5")
    assert scenario.origins["training.micro_batch"] == ("4", "flag --set")
    assert scenario.origins["training.loss"] == ("eager", "default")
    assert scenario.origins["cluster.reserved"] == ("0 GiB", "default")
    assert scenario.origins["model.layers"] == ("32", "preset llama-2-7b")
    assert scenario.origins["parallelism.dp_shard"] == ("8", "fills the world")
    changed = with_changes(scenario, {"training.loss": "eager"}, catalogue=FakeCatalogue())
    assert changed.origins["training.loss"] == ("eager", "change")


def test_values_are_shown_as_they_were_written(load_text: Load) -> None:
    scenario = load_text(TINY, ["cluster.reserved=2048 MiB", "training.clip_grad_norm=1e0"])
    assert scenario.cluster.reserved_bytes == 2 * 2**30
    assert scenario.origins["cluster.reserved"][0] == "2048 MiB"
    assert scenario.origins["training.clip_grad_norm"][0] == "1e0"


def parts(scenario: Scenario) -> tuple[object, ...]:
    return (
        scenario.name,
        scenario.model,
        scenario.cluster,
        scenario.plan,
        scenario.expect,
        scenario.measured,
    )


@pytest.mark.parametrize("name", data_names("scenarios"))
def test_resolving_what_is_resolved_changes_nothing(name: str, fake: FakeCatalogue) -> None:
    once = load(name, catalogue=fake)
    twice = load(once.resolved, catalogue=fake)
    assert parts(twice) == parts(once)
    assert twice.resolved == once.resolved
    assert parts(load(once.raw, catalogue=fake)) == parts(once)


def test_changes_are_validated_and_leave_the_original_alone(load_text: Load) -> None:
    scenario = load_text(TINY)
    changed = with_changes(
        scenario,
        {"cluster.nodes": 4, "training.activation_checkpointing.mode": "full"},
        catalogue=FakeCatalogue(),
    )
    assert changed.plan.parallelism.dp_shard == 32
    assert changed.plan.training.activation_checkpointing == "full"
    assert scenario.plan.parallelism.dp_shard == 8
    assert with_changes(changed, {}, catalogue=FakeCatalogue()) == changed
    back = with_changes(
        changed,
        {"cluster.nodes": None, "training.activation_checkpointing": None},
        catalogue=FakeCatalogue(),
    )
    assert back == scenario
    with pytest.raises(ScenarioError, match=r"^change: training\.micro_batch: expected"):
        with_changes(scenario, {"training.micro_batch": 0}, catalogue=FakeCatalogue())


@given(
    micro_batch=st.integers(1, 64),
    nodes=st.integers(1, 64),
    checkpointing=st.sampled_from(["none", "full", "selective-op"]),
)
def test_a_change_equals_the_same_flag(
    fake: FakeCatalogue, micro_batch: int, nodes: int, checkpointing: str
) -> None:
    changes = {
        "training.micro_batch": micro_batch,
        "cluster.nodes": nodes,
        "training.activation_checkpointing": checkpointing,
    }
    name = "llama2-7b-fsdp2-8xa100"
    flags = [f"{key}={value}" for key, value in changes.items()]
    changed = with_changes(load(name, catalogue=fake), changes, catalogue=fake)
    assert changed == load(name, flags, catalogue=fake)
    assert parts(load(changed.resolved, catalogue=fake)) == parts(changed)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("training.micro_batch", "expected KEY=VALUE"),
        ("=4", "expected KEY=VALUE"),
        ("training.micro_batch=", "the value is missing"),
        ("training..micro_batch=4", "no dotted key"),
        ("training.micro_batch=[", "is no YAML"),
        ("training.micro_batch=04", "leading zero"),
        (".".join("a" * 100) + "=1", "no dotted key"),
        ("training.micro_batch.deep=4", "training.micro_batch: expected a whole number"),
    ],
)
def test_flags_that_cannot_be_read(load_text: Load, flag: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        load_text(TINY, [flag])
    assert words in str(caught.value)


def test_null_leaves_a_key_out(load_text: Load) -> None:
    text = TINY + "expect:\nmeasured: null\n"
    scenario = load_text(text, ["parallelism.dp_shard=null", "training.precision=null"])
    assert scenario.plan.parallelism.dp_shard == 8
    assert scenario.plan.training.precision.name == "fsdp-mixed"
    assert scenario.measured is None


def test_a_mapping_is_a_scenario(fake: FakeCatalogue) -> None:
    mapping = {
        "model": {"preset": "llama-2-7b", "layers": 2},
        "cluster": {"topology": "dgx-a100", "gpus_per_node": 4},
        "parallelism": {"framework": "fsdp2"},
        "training": {"seq_len": 512, "micro_batch": 1, "clip_grad_norm": 1},
    }
    scenario = load(mapping, catalogue=fake)
    assert scenario.plan.parallelism.world_size == 4
    assert scenario.plan.training.clip_grad_norm == 1.0
    assert (scenario.name, scenario.source) == ("mapping", "mapping")


def endless() -> dict[str, object]:
    mapping: dict[str, object] = {}
    mapping["name"] = mapping
    return mapping


@pytest.mark.parametrize(
    "mapping",
    [{}, endless(), {"name": object()}, {("a",): 1}, {"name": 10**5000}, {"a": float("nan")}],
)
def test_any_mapping_ends_in_a_user_error(mapping: dict[str, object], fake: FakeCatalogue) -> None:
    with pytest.raises(UserError):
        load(mapping, catalogue=fake)


def test_a_name_is_found_as_path_with_suffix_and_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakeCatalogue
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(TINY)
    (tmp_path / "llama2-7b-fsdp2-8xa100").mkdir()
    assert load("mine", catalogue=fake).source == "mine.yaml"
    assert load("mine.yaml", catalogue=fake) == load("mine", catalogue=fake)
    assert load(Path("mine.yaml"), catalogue=fake).directory == Path()
    assert load("llama2-7b-fsdp2-8xa100", catalogue=fake).cluster.topology == "dgx-a100"


def test_the_file_name_stands_in_for_a_name(load_text: Load) -> None:
    assert load_text(TINY.replace("name: tiny\n", "")).name == "s"


def test_scenarios_cross_process_borders(load_text: Load) -> None:
    scenario = load_text(TINY)
    again = pickle.loads(pickle.dumps(scenario))
    assert again == scenario
    assert again.origins == scenario.origins
    assert hash(again) == hash(scenario)


def test_the_built_in_catalogue_is_the_default() -> None:
    assert load("llama3-70b-fsdp2-64xh100").plan.parallelism.world_size == 64
    with pytest.raises(ScenarioError) as caught:
        load("llama2-7b-fsdp2-8xa100", ["model=llama-2-7", "cluster.topology=dgx-a10"])
    assert "did you mean 'llama-2-7b'?" in str(caught.value)
    assert "did you mean 'dgx-a100'?" in str(caught.value)
    with pytest.raises(ScenarioError, match=r"flag --set: cluster\.gpu: unknown"):
        load("llama2-7b-fsdp2-8xa100", ["cluster.gpu=nothing"])
