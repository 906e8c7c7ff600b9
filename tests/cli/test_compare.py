from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import TINY, Dryfit

WHAT_IF = "what_if: [{name: twice, set: {training.micro_batch: 2}}, {set: {cluster.nodes: 2}}]\n"


def test_the_table_and_the_causes(dryfit: Dryfit, tiny: Path) -> None:
    outcome = dryfit("compare", tiny, "--set", "training.micro_batch=4")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].split()[:3] == ["run", "peak", "change"]
    assert lines[1].startswith("tiny ")
    assert lines[2].startswith("training.micro_batch=4 ")
    assert "  training.micro_batch: 1 -> 4" in lines
    assert any(line.startswith("  peak +") and "activations +" in line for line in lines)
    assert any(line.startswith("  step +") and "compute +" in line for line in lines)


def test_json_is_one_object(dryfit: Dryfit, tiny: Path) -> None:
    found = dryfit("compare", tiny, "--set", "training.micro_batch=4", "--json").json
    assert found["schema"] == "dryfit.compare/1"
    (change,) = found["changes"]
    difference = change["peak_allocated_bytes"] - found["base"]["peak_allocated_bytes"]
    assert change["differences"]["peak_allocated_bytes"] == difference
    assert sum(each["difference"] for each in change["causes"]["memory_bytes"]) == difference
    assert (
        found["base"]["peak_allocated_bytes"]
        == (dryfit("run", tiny, "--json").json["memory"]["peak_allocated_bytes"])
    )


def test_two_files(dryfit: Dryfit, tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(TINY.replace("dgx-a100", "dgx-h100"))
    found = dryfit("compare", tiny, other, "--json", "--memory-only").json
    assert (found["base"]["name"], found["changes"][0]["name"]) == ("tiny", "other")
    assert found["base"]["step_time_s"] is None
    table = dryfit("compare", tiny, other, "--memory-only").out
    assert "MFU" not in table


def test_something_to_compare_with_is_needed(dryfit: Dryfit, tiny: Path) -> None:
    assert dryfit("compare", tiny).code == 2
    outcome = dryfit("compare", tiny, "--set", "training.micro_batch=0")
    assert outcome.code == 2
    assert "training.micro_batch" in outcome.err


def test_what_if_follows_the_summary(dryfit: Dryfit, tiny: Path) -> None:
    tiny.write_text(TINY + WHAT_IF)
    plain, asked = dryfit("run", tiny), dryfit("run", tiny, "--what-if")
    assert asked.code == plain.code == 0
    assert asked.out.startswith(plain.out)
    after = asked.out.removeprefix(plain.out)
    assert "What if" in after
    assert "\nas it is " in after
    assert "\ntwice " in after
    assert "\ncluster.nodes=2 " in after
    data = dryfit("run", tiny, "--what-if", "--json").json
    assert data["schema"] == "dryfit.result/1"
    assert [each["name"] for each in data["what_if"]["changes"]] == ["twice", "cluster.nodes=2"]
    json.dumps(data)


def test_a_what_if_that_is_wrong_is_told_before_anything_runs(dryfit: Dryfit, tiny: Path) -> None:
    assert "the scenario has no what_if" in dryfit("run", tiny, "--what-if").err
    tiny.write_text(TINY + "what_if: [{name: odd, set: {training.micro_bach: 2}}]\n")
    outcome = dryfit("run", tiny, "--what-if")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{tiny}:6:" in outcome.err
    assert "what_if[0].set: training.micro_bach: unknown key" in outcome.err


def test_every_run_says_what_it_warns_of(dryfit: Dryfit, tiny: Path) -> None:
    host = ("--set", "offload.parameters=host")
    table = dryfit("compare", tiny, *host).out
    assert "Warnings: offload.parameters=host" in table
    assert "step on the host is" in table
    assert "≥ " in table
    data = dryfit("compare", tiny, *host, "--json").json
    assert data["base"]["warnings"] == []
    assert data["base"]["step_time_is_lower_bound"] is False
    (change,) = data["changes"]
    assert change["warnings"] == dryfit("run", tiny, *host, "--json").json["warnings"] != []
    assert change["step_time_is_lower_bound"] is True


def test_a_what_if_says_what_it_warns_of(dryfit: Dryfit, tiny: Path) -> None:
    tiny.write_text(TINY + "what_if: [{name: away, set: {offload.parameters: host}}]\n")
    after = dryfit("run", tiny, "--what-if").out.partition("Warnings: away\n")[2]
    assert "offload.parameters: the copies" in after
    data = dryfit("run", tiny, "--what-if", "--json").json
    assert data["what_if"]["changes"][0]["warnings"] != []


def test_warnings_of_the_base_are_told_once(dryfit: Dryfit, tiny: Path) -> None:
    tiny.write_text(TINY + "offload: {parameters: host}\n")
    table = dryfit("compare", tiny, "--set", "training.micro_batch=2").out
    assert table.count("offload.parameters: the copies") == 1


def test_a_step_that_is_timed_in_part_is_said_to_take_at_least_so_long(
    dryfit: Dryfit, tiny: Path
) -> None:
    tiny.write_text(TINY + "offload: {parameters: host}\nexpect: {step_time: '<= 10 s'}\n")
    outcome = dryfit("run", tiny)
    assert "STEP: at least " in outcome.out
    assert dryfit("run", tiny, "--json").json["step_time_is_lower_bound"] is True
    assert dryfit("check", tiny).code == 1
    assert "STEP: at" not in dryfit("run", tiny, "--set", "offload=null").out
