from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import ScenarioError
from simulator.scenario import Scenario, load
from tests.scenario.conftest import TINY, FakeCatalogue


@pytest.fixture
def extended(tmp_path: Path, fake: FakeCatalogue) -> object:
    (tmp_path / "base.yaml").write_text(TINY)

    def call(text: str) -> Scenario:
        path = tmp_path / "over.yaml"
        path.write_text("extends: base.yaml\n" + text)
        return load(path, catalogue=fake)

    return call


def test_maps_merge_and_both_files_are_named(extended, tmp_path: Path) -> None:
    found = extended("training: {micro_batch: 4}\nmodel: {layers: 2}\n")
    assert (found.plan.training.seq_len, found.plan.training.micro_batch) == (512, 4)
    assert (found.model.name, found.model.layers) == ("llama-2-7b", 2)
    assert found.origins["training.seq_len"] == ("512", f"{tmp_path / 'base.yaml'}:5")
    assert found.origins["training.micro_batch"] == ("4", f"{tmp_path / 'over.yaml'}:2")
    assert "extends" not in found.raw
    assert found.name == "tiny"


def test_a_null_deletes_and_a_list_replaces(extended, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        TINY.replace("micro_batch: 1", "micro_batch: 1, clip_grad_norm: 1.0")
        + "what_if: [{set: {training.micro_batch: 2}}, {set: {training.micro_batch: 4}}]\n"
        + "measured: {fits: true}\n"
    )
    found = extended(
        "training: {clip_grad_norm: null}\nmeasured: null\n"
        "what_if: [{name: eight, set: {training.micro_batch: 8}}]\n"
    )
    assert found.plan.training.clip_grad_norm is None
    assert found.measured is None
    assert [each.name for each in found.what_if] == ["eight"]


def test_a_scalar_replaces_a_map_and_a_map_reaches_into_a_short_form(extended) -> None:
    found = extended("training: {optimizer: {implementation: fused}, precision: {reduce: bf16}}\n")
    assert found.plan.training.optimizer_implementation == "fused"
    precision = found.plan.training.precision
    assert (precision.compute.value, precision.reduce.value) == ("bfloat16", "bfloat16")
    assert extended("model: llama-2-13b\n").model.layers == 40


def test_mistakes_name_the_file_they_stand_in(extended, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(TINY.replace("seq_len: 512", "seq_len: -1"))
    with pytest.raises(ScenarioError) as caught:
        extended("training: {micro_batch: 0}\n")
    said = str(caught.value)
    assert f"{tmp_path / 'base.yaml'}:5:21: training.seq_len" in said
    assert f"{tmp_path / 'over.yaml'}:2:25: training.micro_batch" in said


def test_circles_and_long_chains_are_refused(tmp_path: Path, fake: FakeCatalogue) -> None:
    for name, base in (("a", "b"), ("b", "./c.yaml"), ("c", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}\n")
    with pytest.raises(ScenarioError, match=r"a\.yaml -> b\.yaml -> c\.yaml -> a\.yaml"):
        load(tmp_path / "a.yaml", catalogue=fake)
    for number in range(12):
        (tmp_path / f"n{number}.yaml").write_text(f"extends: n{number + 1}.yaml\n")
    with pytest.raises(ScenarioError, match="longer than 10 files"):
        load(tmp_path / "n0.yaml", catalogue=fake)


@pytest.mark.parametrize("base", ["nothing.yaml", "nothing", "[a]", "'-'", "''", "5"])
def test_a_base_that_is_not_there_is_named_with_its_place(
    tmp_path: Path, fake: FakeCatalogue, base: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"name: x\nextends: {base}\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml:2:10: extends: "):
        load(path, catalogue=fake)


def test_a_packaged_scenario_is_a_base(fake: FakeCatalogue) -> None:
    found = load({"extends": "llama3-8b-fsdp2-8xh100", "name": "mine"}, catalogue=fake)
    assert found.name == "mine"
    assert found.cluster.topology == "hgx-h100-96gb"
    assert found.origins["cluster.nodes"][1].partition(".yaml:")[0].endswith("fsdp2-8xh100")


def test_files_beside_the_base_are_found(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    config = '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64'
    (below / "config.json").write_text(config + ', "vocab_size": 512}')
    text = TINY.replace("model: llama-2-7b", "model: {hf_config: config.json}")
    (below / "base.yaml").write_text(text.replace("512", "64"))
    (tmp_path / "s.yaml").write_text("extends: below/base.yaml\n")
    assert load(tmp_path / "s.yaml").model.family == "gpt2"
