"""``dryfit check``: is the scenario sound, and does the answer meet its ``expect:``?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.cli.options import json_option, scenario_argument, set_option, verb

if TYPE_CHECKING:
    from simulator.study.check import Check, Expectation


@verb("check", "Lint, warnings, and what the file expects.")
@scenario_argument()
@json_option
@set_option
def check(scenario: str, as_json: bool, sets: tuple[str, ...]) -> int:
    """Lint SCENARIO, print its warnings, hold the answer to its expect:; exit 1 if it falls short.

    A scenario that cannot be read is a mistake of yours: exit 2, all of its mistakes at once.
    """
    from simulator.cli.output import emit, emit_json, say
    from simulator.scenario import load
    from simulator.study.check import check as hold_to

    found = hold_to(load(scenario, sets))
    if as_json:
        emit_json(found.to_json())
    else:
        for warning in found.warnings:
            say(f"warning: {warning}")
        emit(_report(found))
    return 0 if found.holds else 1


def _report(found: Check) -> str:
    from simulator.cli.output import table

    if not found.expectations:
        return f"{found.scenario}: sound; it expects nothing"
    rows = [
        [each.key, each.expected, _shown(each), "holds" if each.holds else "FAILS"]
        for each in found.expectations
    ]
    return table(["expectation", "wanted", "found", "verdict"], rows)


def _shown(each: Expectation) -> str:
    """What was found, in the unit of its key."""
    from simulator.units import format_bytes, format_time

    if each.found is None:
        return "not known: the allocator is off"
    if isinstance(each.found, bool):
        return str(each.found).lower()
    if each.key.startswith("peak_"):
        return format_bytes(int(each.found))
    return format_time(each.found) if each.key == "step_time" else f"{each.found:.4g}"
