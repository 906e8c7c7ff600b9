"""Does the answer meet what the scenario's ``expect:`` says?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from simulator.run import run
from simulator.scenario.bounds import Bound, Expect
from simulator.scenario.scenario import Scenario
from simulator.trace.result import Result, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One line of ``expect:`` held against the answer; ``found`` is None where it is not known."""

    key: str
    expected: str
    found: float | bool | None
    holds: bool

    def to_json(self) -> dict[str, object]:
        """The entry of ``expectations``; bytes, seconds, fractions."""
        return {
            "key": self.key,
            "expected": self.expected,
            "found": self.found,
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What ``check`` says of one scenario."""

    scenario: str
    warnings: tuple[str, ...]
    expectations: tuple[Expectation, ...]

    @property
    def holds(self) -> bool:
        """Whether every expectation holds."""
        return all(expectation.holds for expectation in self.expectations)

    def to_json(self) -> dict[str, object]:
        """The object of ``dryfit check --json``."""
        return {
            "schema": "dryfit.check/1",
            "scenario": self.scenario,
            "holds": self.holds,
            "warnings": list(self.warnings),
            "expectations": [expectation.to_json() for expectation in self.expectations],
        }


def check(scenario: Scenario) -> Check:
    """Simulate, compare, and collect the warnings. What is not known does not hold."""
    result = summarise(run(scenario))
    return Check(
        scenario=scenario.name,
        warnings=result.trace.header.warnings,
        expectations=compare(scenario.expect, result),
    )


def compare(expect: Expect, result: Result) -> tuple[Expectation, ...]:
    """Each expectation beside what the result says."""
    found = _answers(result)
    return tuple(
        _expectation(field.name, getattr(expect, field.name), found[field.name])
        for field in fields(Expect)
        if getattr(expect, field.name) is not None
    )


def _answers(result: Result) -> Mapping[str, float | bool | None]:
    """What is known: a step of which part is not timed is not."""
    timed = not result.at_least
    return {
        "fits": result.memory.fits,
        "peak_allocated": result.memory.peak_allocated_bytes,
        "peak_reserved": result.memory.peak_reserved_bytes,
        "step_time": result.step_time_s if timed else None,
        "mfu": result.mfu if timed else None,
        "tokens_per_s_per_gpu": result.tokens_per_s_per_gpu if timed else None,
    }


def _expectation(key: str, wanted: bool | Bound, found: float | bool | None) -> Expectation:
    if isinstance(wanted, bool):
        text, holds = str(wanted).lower(), found is wanted
    else:
        text, holds = wanted.text, found is not None and wanted.holds(found)
    return Expectation(key=key, expected=text, found=found, holds=holds)
