"""``dryfit show``: what stands behind an answer, without the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from simulator.cli import textbook, views
from simulator.cli.completion import complete_shown
from simulator.cli.options import json_option, out_option, scenario_argument, set_option, verb

VIEWS: dict[str, Callable[[views.Asked], views.Shown]] = {
    "resolved": views.resolved,
    "topology": views.topology,
    "program": views.program,
    "classes": views.classes,
    "curve": views.curve,
    "textbook": textbook.textbook,
}
"""Each view by the flag that asks for it."""

PICTURES = (".png", ".svg", ".pdf")

_HELP = {
    "resolved": "Every value and where it came from (the default).",
    "topology": "The cluster as a graph; SCENARIO may be a topology; --out draws it.",
    "program": "What one rank issues.",
    "classes": "Ranks that must behave alike, folded.",
    "curve": "Memory at every framework hook of the peak rank.",
    "textbook": "Bytes a parameter, by recipe; takes no SCENARIO.",
}


def _view_options(command: Callable[..., int]) -> Callable[..., int]:
    for name in reversed(VIEWS):
        command = click.option(f"--{name}", is_flag=True, help=_HELP[name])(command)
    return command


@verb("show", "Values, topology, program, classes, curve.")
@scenario_argument(required=False, shell_complete=complete_shown)
@_view_options
@out_option("PNG", "Draw the --topology there.")
@click.option("--parameters", metavar="N", help="For --textbook, as 7e9. [default: 7e9]")
@json_option
@set_option
def show(
    scenario: str | None,
    out: Path | None,
    parameters: str | None,
    as_json: bool,
    sets: tuple[str, ...],
    **flags: Any,
) -> int:
    """Show one thing about SCENARIO: resolved values, topology, program, classes or curve."""
    from simulator.cli.output import emit, emit_json

    view = _chosen([name for name in VIEWS if flags[name]])
    _refuse(scenario is None and view != "textbook", "show needs a SCENARIO")
    _refuse(scenario is not None and view == "textbook", "--textbook takes no SCENARIO")
    _refuse(out is not None and view != "topology", "--out belongs to --topology")
    _refuse(
        out is not None and out.suffix not in PICTURES, f"--out ends in {' or '.join(PICTURES)}"
    )
    _refuse(parameters is not None and view != "textbook", "--parameters belongs to --textbook")
    asked = views.Asked(scenario=scenario or "", sets=sets, out=out, parameters=parameters)
    shown = VIEWS[view](asked)
    if as_json:
        emit_json(shown.data())
    else:
        emit(shown.text())
    return 0


def _chosen(asked: list[str]) -> str:
    _refuse(len(asked) > 1, f"show one thing at a time, not {' and '.join(asked)}")
    return asked[0] if asked else "resolved"


def _refuse(wrong: bool, message: str) -> None:
    if wrong:
        raise click.UsageError(message, click.get_current_context())
