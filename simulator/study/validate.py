"""Predicted against measured: every scenario with ``measured:``, its error, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.run import run
from simulator.scenario import Inexpressible, Scenario
from simulator.study.cases import Case, Skip, held_against, missed
from simulator.study.errors_of import Summary, summaries
from simulator.trace.result import summarise

UNMEASURED = "has no measured:"
"""Why a scenario is skipped that has nothing to be held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All cases, all skips, and the errors summed up by quantity."""

    cases: tuple[Case, ...]
    skipped: tuple[Skip, ...]
    summary: dict[str, Summary]

    @property
    def holds(self) -> bool:
        """Whether nine of ten cases of every quantity and counter are within their bound.

        Every fits verdict must be right. A case that dryfit can't express is out of bounds.
        """
        if any(case.verdict == "wrong" for case in self.cases):
            return False
        groups: dict[tuple[str, str | None], list[bool]] = {}
        for case in self.cases:
            if case.verdict in ("within", "outside", "miss"):
                groups.setdefault((case.quantity, case.counter), []).append(
                    case.verdict != "within"
                )
        return all(10 * sum(missed) <= len(missed) for missed in groups.values())

    def to_json(self) -> dict[str, object]:
        """The object ``dryfit.validate/1``."""
        return {
            "schema": "dryfit.validate/1",
            "cases": [case.to_json() for case in self.cases],
            "skipped": [skip.to_json() for skip in self.skipped],
            "summary": {name: each.to_json() for name, each in self.summary.items()},
        }


def validate(scenarios: Mapping[str, Scenario | Inexpressible]) -> Validation:
    """Simulate each scenario (by id) that has ``measured:`` and compare."""
    found: list[Case | Skip] = []
    for name, scenario in scenarios.items():
        if isinstance(scenario, Inexpressible):
            found += missed(name, scenario.measured, scenario.why)
        elif scenario.measured is None:
            found.append(Skip(id=name, why=UNMEASURED))
        else:
            found += held_against(name, scenario.measured, summarise(run(scenario)))
    cases = tuple(entry for entry in found if isinstance(entry, Case))
    skipped = tuple(entry for entry in found if isinstance(entry, Skip))
    summary = summaries(case for case in cases if case.counts)
    return Validation(cases=cases, skipped=skipped, summary=summary)
