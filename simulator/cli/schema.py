"""``dryfit schema``: what a scenario may hold, as a JSON Schema for editors."""

from __future__ import annotations

from simulator.cli.options import verb


@verb("schema", "JSON Schema of a scenario, for editors.")
def schema() -> int:
    """Print the JSON Schema (draft 7) of a scenario.

    Write it beside a scenario as scenario.schema.json, and editors that read the first line of
    the packaged scenarios complete and check as you type.
    """
    from simulator.cli.output import emit_json
    from simulator.scenario.json_schema import scenario_schema

    emit_json(scenario_schema())
    return 0
