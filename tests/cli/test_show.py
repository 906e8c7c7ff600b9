from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Dryfit

VIEWS = ("resolved", "topology", "program", "classes", "curve")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_text_and_one_object(dryfit: Dryfit, tiny: Path, view: str) -> None:
    words, data = dryfit("show", tiny, f"--{view}"), dryfit("show", tiny, f"--{view}", "--json")
    assert (words.code, data.code) == (0, 0)
    assert words.out.strip()
    assert data.json["schema"] == f"dryfit.{view}/1"


def test_resolved_says_where_each_value_comes_from(dryfit: Dryfit, tiny: Path) -> None:
    outcome = dryfit("show", tiny, "--set", "training.micro_batch=4", "--json")
    values = {each["key"]: each for each in outcome.json["values"]}
    assert values["training.seq_len"]["value"] == "512"
    assert values["training.seq_len"]["origin"].endswith("tiny.yaml:5")
    assert "--set" in values["training.micro_batch"]["origin"]
    assert values["training.loss"]["origin"] == "default"
    assert values["parallelism.dp_shard"]["value"] == "8"


def test_the_curve_is_the_contract(dryfit: Dryfit, tiny: Path) -> None:
    points = dryfit("show", tiny, "--curve", "--json").json["points"]
    assert {len(point) for point in points} == {5}
    step, mark, allocated, reserved, seconds = points[0]
    assert step == 0
    assert 0 < allocated <= reserved
    assert isinstance(mark, str)
    assert allocated > 0
    assert seconds >= 0


def test_topology_of_a_name_and_its_picture(dryfit: Dryfit, tmp_path: Path) -> None:
    picture = tmp_path / "node.png"
    outcome = dryfit("show", "dgx-a100", "--topology", "--out", picture, "--json")
    assert outcome.code == 0
    assert len(outcome.json["devices"]) == 8
    assert picture.read_bytes().startswith(b"\x89PNG")


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["", "topologies"])
@pytest.mark.parametrize("name", ["my-cluster", "my-cluster.yaml"])
def test_a_topology_of_ones_own_is_drawn(
    dryfit: Dryfit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "topologies" / "dgx-a100.yaml").read_text()
    (tmp_path / folder / "gpus").mkdir(parents=True)
    (tmp_path / folder / "my-cluster.yaml").write_text(text.replace("a100-sxm-80gb", "mine"))
    gpu = (ROOT / "topologies" / "gpus" / "a100-sxm-80gb.yaml").read_text()
    (tmp_path / folder / "gpus" / "mine.yaml").write_text(gpu)
    if folder and name.endswith(".yaml"):
        name = f"{folder}/{name}"
    found = dryfit("show", "--topology", name, "--json").json
    assert (found["name"], found["devices"][0]["gpu"]) == ("my-cluster", "mine")
    (tmp_path / folder / "same.yaml").write_text("extends: my-cluster\n")
    found = dryfit("show", "--topology", name.replace("my-cluster", "same"), "--json").json
    assert (found["name"], found["devices"][0]["gpu"]) == ("same", "mine")


def test_a_scenario_of_a_topologys_name_is_a_scenario(
    dryfit: Dryfit, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    found = dryfit("show", "--topology", "tiny", "--json").json
    assert found["name"] == "dgx-a100"
    assert "unknown scenario" in dryfit("show", "--topology", "tinyy").err


def test_a_gpu_below_topologies_is_beside_the_scenario(dryfit: Dryfit, tiny: Path) -> None:
    gpus = tiny.parent / "topologies" / "gpus"
    gpus.mkdir(parents=True)
    gpu = (ROOT / "topologies" / "gpus" / "a100-sxm-80gb.yaml").read_text()
    (gpus / "mine.yaml").write_text(gpu)
    found = dryfit("show", tiny, "--topology", "--set", "cluster.gpu=mine", "--json").json
    assert {device["gpu"] for device in found["devices"]} == {"mine"}


@pytest.mark.parametrize("name", ["node.gif", "node", "none/node.png"])
def test_a_picture_that_cannot_be_is_the_users_mistake(
    dryfit: Dryfit, tmp_path: Path, name: str
) -> None:
    assert dryfit("show", "dgx-a100", "--topology", "--out", tmp_path / name).code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_classes_hold_every_rank_once(dryfit: Dryfit, tiny: Path) -> None:
    classes = dryfit("show", tiny, "--classes", "--json").json["classes"]
    assert sorted(rank for each in classes for rank in each["ranks"]) == list(range(8))


def test_the_textbook_has_both_accountings(dryfit: Dryfit) -> None:
    words = dryfit("show", "--textbook").out
    assert "112.0 GB = 104.3 GiB" in words
    assert "84.0 GB = 78.2 GiB" in words
    recipes = dryfit("show", "--textbook", "--parameters", "1e9", "--json").json["recipes"]
    assert {name: each["bytes_per_parameter"] for name, each in recipes.items()} == {
        "fp32": 16,
        "bf16-mixed-master": 16,
        "bf16-no-master": 12,
        "fsdp-mixed": 16,
        "megatron-bf16": 18,
        "pure-bf16": 8,
        "autocast": 16,
    }
    assert recipes["pure-bf16"]["total_bytes"] == 8_000_000_000
