"""init, schema and completion: what stands before a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.app import app
from simulator.cli.init import STARTER
from simulator.data import data_dir
from simulator.documents.mistakes import Mistakes
from simulator.documents.node import plain
from simulator.documents.yaml_reader import read_yaml
from simulator.model.presets import PRESETS
from simulator.scenario import load
from simulator.scenario.about import ABOUT
from simulator.scenario.json_schema import FILE, dotted_keys, scenario_schema
from tests.cli.conftest import Dryfit


def test_the_starter_loads_runs_and_meets_what_it_expects(dryfit: Dryfit, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    outcome = dryfit("init", path)
    assert (outcome.code, outcome.out) == (0, "")
    assert "dryfit run mine.yaml" in path.read_text()
    assert dryfit("run", path, "--what-if").code == 0
    assert dryfit("check", path).code == 0
    assert load(path).warnings == ()


def test_init_writes_over_nothing(dryfit: Dryfit, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("precious")
    refused = dryfit("init", path)
    assert refused.code == 2
    assert "--force" in refused.err
    assert path.read_text() == "precious"
    assert dryfit("init", path, "--force").code == 0
    assert path.read_text() != "precious"
    assert dryfit("init", "-").out == STARTER
    for wrong in (tmp_path, "", tmp_path / "no" / "folder.yaml"):
        assert dryfit("init", wrong).code == 2


def test_every_setting_that_the_starter_names_works() -> None:
    lines = STARTER.splitlines()
    at = lines.index("# model:")
    del lines[at : at + 3]
    text = "\n".join(line.replace("# ", "  ", 1) if is_setting(line) else line for line in lines)
    text = text.replace("# offload", "offload")
    found = load(plain(read_yaml(text, "starter", Mistakes())))
    assert found.plan.parallelism.dp_replicate == 2
    assert found.plan.offload_parameters


def is_setting(line: str) -> bool:
    keys = ("gpus_per_node", "gpu:", "dp_replicate", "fsdp:", "  wrap", "  reshard", "global_batch")
    return line.startswith("# ") and line[2:].startswith(keys)


def test_the_shipped_schema_is_what_schema_prints(dryfit: Dryfit) -> None:
    shipped = (data_dir("scenarios") / FILE).read_text(encoding="utf-8")
    assert dryfit("schema").out == shipped, f"run: dryfit schema > scenarios/{FILE}"


def test_the_schema_is_of_draft_7_and_holds_for_what_loads(load_all: list[Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = scenario_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    judge = jsonschema.Draft7Validator(schema)
    for tree in load_all:
        assert not list(judge.iter_errors(tree))
    wrong = {**load_all[0], "trainin": {}}
    assert list(judge.iter_errors(wrong))
    assert list(judge.iter_errors({**load_all[0], "cluster": {"nodes": "two"}}))
    assert not list(judge.iter_errors({"extends": "base.yaml", "training": {"micro_batch": 2}}))
    assert list(judge.iter_errors({"model": "llama-2-7b"}))


@pytest.fixture
def load_all() -> list[Any]:
    texts = [path.read_text() for path in data_dir("scenarios").glob("*.yaml")]
    return [plain(read_yaml(text, "s", Mistakes())) for text in [*texts, STARTER]]


def test_every_key_is_described() -> None:
    assert set(ABOUT) == set(dotted_keys())


def complete(*words: str) -> list[str]:
    from click.shell_completion import ShellComplete

    asked = ShellComplete(app, {}, "dryfit", "_DRYFIT_COMPLETE")
    return [item.value for item in asked.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), ["run", "compare", "init", "schema"]),
        (("run", "llama2"), ["llama2-7b-fsdp2-8xa100"]),
        (("compare", "a", "llama2"), ["llama2-7b-fsdp2-8xa100"]),
        (("show", "--topology", "dgx-a"), ["dgx-a100"]),
        (("list", "g"), ["gpus"]),
        (("run", "a", "--set", "training.mi"), ["training.micro_batch="]),
        (("run", "a", "--set", "training.precision=fs"), ["training.precision=fsdp-mixed"]),
        (("run", "a", "--set", "model.preset="), [f"model.preset={name}" for name in PRESETS]),
        (("run", "a", "--set", "cluster.topology=dgx-h"), ["cluster.topology=dgx-h100"]),
        (("run", "a", "--set", "cluster.gpu=h200"), ["cluster.gpu=h200-sxm-141gb"]),
        (
            ("run", "a", "--set", "parallelism.fsdp.wrap="),
            [f"parallelism.fsdp.wrap={name}" for name in ("torchtitan", "block", "none")],
        ),
        (("run", "a", "--set", "measured.fits="), ["measured.fits=true", "measured.fits=false"]),
    ],
)
def test_the_shell_completes(words: tuple[str, ...], offered: list[str]) -> None:
    assert set(offered) <= set(complete(*words))


def test_what_nobody_knows_is_completed_to_nothing() -> None:
    assert complete("run", "a", "--set", "nothing=") == []
    assert complete("run", "a", "--set", "training.micro_batch=") == []
    assert json.loads(json.dumps(complete("run", "a", "--set", "zz"))) == []
