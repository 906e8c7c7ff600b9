from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import TINY, Dryfit


def check(dryfit: Dryfit, folder: Path, expect: str):
    path = folder / "expecting.yaml"
    path.write_text(f"{TINY}expect: {expect}\n", encoding="utf-8")
    return dryfit("check", path, "--json")


@pytest.mark.parametrize(
    ("expect", "holds"),
    [
        ("{fits: true}", True),
        ("{fits: false}", False),
        ('{peak_allocated: "<= 79 GiB", step_time: "<= 10 s"}', True),
        ('{peak_allocated: "<= 1 MiB"}', False),
        ('{mfu: ">= 0.99"}', False),
        ('{tokens_per_s_per_gpu: "> 1"}', True),
    ],
)
def test_expectations(dryfit: Dryfit, tmp_path: Path, expect: str, holds: bool) -> None:
    outcome = check(dryfit, tmp_path, expect)
    assert outcome.code == (0 if holds else 1)
    assert outcome.json["holds"] is holds
    assert [each["holds"] for each in outcome.json["expectations"]].count(False) == (not holds)


def test_what_is_not_known_does_not_hold(dryfit: Dryfit, tmp_path: Path) -> None:
    outcome = check(dryfit, tmp_path, '{peak_reserved: "<= 79 GiB"}\nallocator: off')
    assert outcome.code == 1
    assert outcome.json["expectations"][0]["found"] is None


def test_a_sound_scenario_that_expects_nothing(dryfit: Dryfit, tiny: Path) -> None:
    outcome = dryfit("check", tiny)
    assert outcome.code == 0
    assert "sound" in outcome.out


def test_all_mistakes_of_a_file_at_once(dryfit: Dryfit, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    wrong = TINY.replace("seq_len: 512", "seq_len: -1").replace("nodes: 1", "noddes: 1")
    path.write_text(wrong, encoding="utf-8")
    outcome = dryfit("check", path)
    assert outcome.code == 2
    assert f"{path}:3:" in outcome.err
    assert f"{path}:5:" in outcome.err


def test_every_packaged_scenario_is_sound(dryfit: Dryfit) -> None:
    for row in dryfit("list", "scenarios", "--json").json["scenarios"]:
        assert dryfit("check", row["name"]).code == 0, row["name"]
