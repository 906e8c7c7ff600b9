"""What the README says is what the commands do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.cli.app import VERBS
from simulator.cli.guard import run
from simulator.scenario import load
from simulator.study.claims import claims

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def marked(name: str) -> str:
    """The code between ``<!-- name -->`` and ``<!-- end of name -->``."""
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)\n```\n<!-- end of {name} -->", README, re.S)
    assert found is not None, f"the README has no block {name!r}"
    return found[1]


def test_how_right_it_is_is_what_validate_prints(capsys: pytest.CaptureFixture[str]) -> None:
    run(["validate"])
    printed = capsys.readouterr().out.strip()
    assert printed == marked("dryfit validate")
    said = re.findall(r"^(?:peak memory|step time|fits): .*$", printed, re.M)
    assert said == marked("errors").splitlines()


def test_what_textbooks_say_is_simulated() -> None:
    table = README.partition("<!-- claims -->")[2].partition("<!-- end of claims -->")[0]
    for claim in claims():
        found = f"| {claim.claimed} | {claim.simulated:.1f} {claim.unit} | {claim.why} |"
        assert f"| {claim.says} {found}\n" in table


def test_the_scenario_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(marked("a scenario"), encoding="utf-8")
    assert load(path).plan.parallelism.world_size == 8


def test_every_verb_is_named() -> None:
    named = set(re.findall(r"`dryfit (\w+)", README))
    assert named == set(VERBS)


def test_links_lead_somewhere() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), f"{document}: {target}"
