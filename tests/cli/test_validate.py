from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.study.cases import BOUNDS
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
        ("fits", "device", "bool", "right"),
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
    case = measured(tmp_path, "{peak_reserved: 1 GiB}\nallocator: off")
    outcome = dryfit("validate", case, "--json")
    assert outcome.json["cases"] == []
    assert "reserved" in outcome.json["skipped"][0]["why"]
    assert outcome.code == 0


def test_untrusted_cases_are_shown_and_do_not_count(dryfit: Dryfit, tmp_path: Path) -> None:
    outcome = dryfit("validate", measured(tmp_path, "{step_time: 1 h, trust: C}"), "--json")
    assert outcome.code == 0
    assert outcome.json["cases"][0]["verdict"] == "shown"
    assert outcome.json["summary"] == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{step_time: 0 s}", "measured.step_time: expected more than 0"),
        ("{peak_allocated: 0 GiB}", "measured.peak_allocated: expected more than 0"),
        ("{peak_allocated: 1 GiB, of: 99}", "measured.of: found rank 99"),
    ],
)
def test_what_nothing_can_be_held_against_is_told_with_its_place(
    dryfit: Dryfit, tmp_path: Path, text: str, words: str
) -> None:
    outcome = dryfit("validate", measured(tmp_path, text))
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "case.yaml:6:" in outcome.err


def test_the_bounds_are_said_as_they_are(dryfit: Dryfit) -> None:
    words = dryfit("validate", "--help").out
    for counter, bound in BOUNDS.items():
        assert re.search(rf"{counter.replace('_', ' ')} +{bound:g} %", words)
    assert "trust: C" in words


def test_what_is_shown_says_why(dryfit: Dryfit, tmp_path: Path) -> None:
    assert "shown, active: " in dryfit("validate", measured(tmp_path, "{peak_active: 1 GiB}")).out
    text = "{step_time: 1 h, trust: C}"
    assert "shown, others: trust: C" in dryfit("validate", measured(tmp_path, text)).out


def test_a_wrong_fits_verdict_is_out_of_bounds(dryfit: Dryfit, tmp_path: Path) -> None:
    assert dryfit("validate", measured(tmp_path, "{fits: false}")).code == 1


def test_a_file_without_measurements_is_skipped(dryfit: Dryfit, tiny: Path) -> None:
    outcome = dryfit("validate", tiny, "--json")
    assert outcome.json["skipped"] == [{"id": "tiny", "why": "has no measured:"}]
    assert outcome.code == 1
    assert "nothing was compared" in outcome.err


def test_files_of_one_name_stay_apart(dryfit: Dryfit, tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tiny.yaml"
    other.parent.mkdir()
    other.write_text(TINY, encoding="utf-8")
    skipped = dryfit("validate", tiny, other, "--json").json["skipped"]
    assert [each["id"] for each in skipped] == [str(tiny), str(other)]


def test_nearest_rank() -> None:
    assert p90([5.0]) == 5.0
    assert p90([float(n) for n in range(1, 21)]) == 18.0


CASES = """\
base: tiny.yaml
cases:
  - {id: one, measured: {fits: true, source: a}}
  - {id: two, set: {training.micro_batch: 2}, measured: {fits: false, source: b}}
  - {id: three, set: {training.compile: model}, measured: {step_time: 1 s, peak_allocated: 1 GiB}}
"""


def test_a_reference_set_is_many_cases(dryfit: Dryfit, tiny: Path) -> None:
    path = tiny.with_name("set.yaml")
    path.write_text(CASES)
    outcome = dryfit("validate", path, "--json")
    assert outcome.code == 1
    found = [(case["id"], case["quantity"], case["verdict"]) for case in outcome.json["cases"]]
    assert found == [
        ("one", "fits", "right"),
        ("two", "fits", "wrong"),
        ("three", "peak_memory", "miss"),
        ("three", "step_time", "miss"),
    ]
    assert outcome.json["cases"][2]["predicted"] is None
    assert outcome.json["summary"]["step_time"]["missed"] == 1
    words = dryfit("validate", path).out
    assert "missed three: training.compile: not yet supported" in words
    assert "step time: 1 case (1 missed)" in words


def test_a_case_that_cannot_be_expressed_is_out_of_bounds(dryfit: Dryfit, tiny: Path) -> None:
    path = tiny.with_name("set.yaml")
    path.write_text(CASES.replace("fits: false", "fits: true"))
    assert dryfit("validate", path).code == 1
    path.write_text(CASES.replace("fits: false", "fits: true").rpartition("  - ")[0])
    assert dryfit("validate", path).code == 0
    path.write_text(CASES.rpartition("  - ")[0].replace("tiny.yaml", f"{{extends: {tiny.name}}}"))
    assert dryfit("validate", path).code == 1


def test_a_case_that_lacks_something_is_a_miss_and_says_what(dryfit: Dryfit, tiny: Path) -> None:
    path = tiny.with_name("set.yaml")
    path.write_text(CASES.replace("id: one,", "id: one, lacks: a data loader,"))
    first = dryfit("validate", path, "--json").json["cases"][0]
    assert (first["verdict"], first["predicted"], first["why"]) == ("miss", None, "a data loader")
    path.write_text(CASES.replace("id: three,", "id: three, lacks: a data loader,"))
    assert "missed three: a data loader" in dryfit("validate", path).out


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        ("id: two", "lacks: [], id: two", "cases[1].lacks: expected text"),
        ("id: two", "id: one", "set.yaml:4:5: cases[1].id: 'one' is the id of an earlier case"),
        ("micro_batch: 2", "micro_bach: 2", "set.yaml:4:42: training.micro_bach: unknown key"),
        ("fits: true", "fit: true", "measured.fit: unknown key; did you mean 'fits'?"),
        ("id: two, set", "id: two, sets", "cases[1].sets: unknown key; did you mean 'set'?"),
        ("id: two, ", "", "cases[1].id: expected text, found nothing"),
        ("1 GiB", "1", "the unit is missing"),
        ("base: tiny.yaml", "base: tiny2.yaml", "tiny2.yaml: no such file"),
        ("base: tiny.yaml", "base: []", "base: expected the name of a scenario"),
        ("base: tiny.yaml", "bass: tiny.yaml", "bass: unknown key; did you mean 'base'?"),
    ],
)
def test_a_reference_set_that_is_wrong_is_told(
    dryfit: Dryfit, tiny: Path, wrong: str, right: str, words: str
) -> None:
    path = tiny.with_name("set.yaml")
    path.write_text(CASES.replace(wrong, right))
    outcome = dryfit("validate", path)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
