"""``dryfit compare``: two scenarios, or one under a change, and what the difference comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.completion import complete_scenario
from simulator.cli.options import (
    json_option,
    scenario_argument,
    set_option,
    steps_option,
    verb,
)

if TYPE_CHECKING:
    from simulator.scenario import Scenario


@verb("compare", "Two scenarios side by side, with the causes.")
@scenario_argument()
@click.argument("other", required=False, shell_complete=complete_scenario)
@json_option
@set_option
@steps_option
@click.option("--memory-only", is_flag=True, help="Do not play the engine: no times.")
def compare(
    scenario: str,
    other: str | None,
    as_json: bool,
    sets: tuple[str, ...],
    steps: int,
    memory_only: bool,
) -> int:
    """Compare SCENARIO with OTHER, or with itself under --set: memory, time and the causes.

    With both, --set changes OTHER.
    """
    from simulator.cli.comparison import show_comparison
    from simulator.cli.output import emit, emit_json
    from simulator.scenario import load
    from simulator.study.compare import side_by_side

    if other is None and not sets:
        raise click.UsageError("compare needs a second scenario, or --set")
    first, second = load(scenario), load(scenario if other is None else other, sets)
    named = _named(scenario, other, sets, first, second)
    found = side_by_side(named, steps=steps, memory_only=memory_only)
    if as_json:
        emit_json(found.to_json())
    else:
        emit(show_comparison(found))
    return 0


def _named(
    scenario: str, other: str | None, sets: tuple[str, ...], first: Scenario, second: Scenario
) -> list[tuple[str, Scenario]]:
    """By the names of the scenarios; by those of their files where these are the same."""
    if other is None:
        return [(first.name, first), (", ".join(sets), second)]
    if first.name != second.name:
        return [(first.name, first), (second.name, second)]
    stems = Path(scenario).stem, Path(other).stem
    if stems[0] == stems[1]:
        stems = scenario, other if other != scenario else ", ".join(sets) or other
    return [(stems[0], first), (stems[1], second)]
