from __future__ import annotations

from pathlib import Path

import pytest

from simulator.study.errors_of import p90
from tests.cli.conftest import TINY, Dryfit


def measured(folder: Path, text: str) -> Path:
    path = folder / "case.yaml"
    path.write_text(f"{TINY}measured: {text}\n", encoding="utf-8")
    return path


@pytest.fixture
def truth(dryfit: Dryfit, tiny: Path) -> dict[str, float]:
    found = dryfit("run", tiny, "--json").json
    return {
        "step": found["step_time_s"],
        "tokens": found["tokens_per_s_per_gpu"],
        "bytes": found["memory"]["peak_allocated_bytes"],
    }


def test_a_perfect_case(dryfit: Dryfit, tmp_path: Path, truth: dict[str, float]) -> None:
    text = (
        f"{{peak_allocated: {truth['bytes']} B, tokens_per_s_per_gpu: {truth['tokens']!r}, "
        "fits: true, source: here}"
    )
    outcome = dryfit("validate", measured(tmp_path, text), "--json")
    assert outcome.code == 0
    found = outcome.json
    assert found["schema"] == "dryfit.validate/1"
    assert [(c["quantity"], c["counter"], c["unit"], c["verdict"]) for c in found["cases"]] == [
        ("peak_memory", "allocated", "bytes", "within"),
        ("step_time", None, "s", "within"),
        ("fits", "allocated", "bool", "right"),
    ]
    assert found["cases"][1]["error_pct"] == pytest.approx(0, abs=1e-9)
    assert found["summary"]["step_time"]["by_source"] == {
        "here": {"n": 1, "median_abs_pct": pytest.approx(0, abs=1e-9)}
    }


@pytest.mark.parametrize(("factor", "code"), [(0.75, 1), (0.9, 0), (1.2, 0), (1.5, 1)])
def test_step_time_is_bound_by_a_fifth(
    dryfit: Dryfit, tmp_path: Path, truth: dict[str, float], factor: float, code: int
) -> None:
    outcome = dryfit("validate", measured(tmp_path, f"{{step_time: {factor * truth['step']} s}}"))
    assert outcome.code == code
    assert ("outside" in outcome.out) is bool(code)


def test_allocated_is_never_held_against_reserved(dryfit: Dryfit, tmp_path: Path) -> None:
    outcome = dryfit("validate", measured(tmp_path, "{peak_reserved: 1 GiB}"), "--json")
    assert outcome.json["cases"] == []
    assert "reserved" in outcome.json["skipped"][0]["why"]
    assert outcome.code == 0


def test_untrusted_cases_are_shown_and_do_not_count(dryfit: Dryfit, tmp_path: Path) -> None:
    outcome = dryfit("validate", measured(tmp_path, "{step_time: 1 h, trust: C}"), "--json")
    assert outcome.code == 0
    assert outcome.json["cases"][0]["verdict"] == "shown"
    assert outcome.json["summary"] == {}


def test_a_wrong_fits_verdict_is_out_of_bounds(dryfit: Dryfit, tmp_path: Path) -> None:
    assert dryfit("validate", measured(tmp_path, "{fits: false}")).code == 1


def test_a_file_without_measurements_is_skipped(dryfit: Dryfit, tiny: Path) -> None:
    outcome = dryfit("validate", tiny, "--json")
    assert outcome.json["skipped"] == [{"id": "tiny", "why": "has no measured:"}]


def test_files_of_one_name_stay_apart(dryfit: Dryfit, tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tiny.yaml"
    other.parent.mkdir()
    other.write_text(TINY, encoding="utf-8")
    skipped = dryfit("validate", tiny, other, "--json").json["skipped"]
    assert [each["id"] for each in skipped] == [str(tiny), str(other)]


def test_nearest_rank() -> None:
    assert p90([5.0]) == 5.0
    assert p90([float(n) for n in range(1, 21)]) == 18.0
