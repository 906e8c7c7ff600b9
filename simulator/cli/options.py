"""What verbs share: their class, the scenario argument and the options that mean the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from simulator.cli.completion import complete_scenario, complete_set


@dataclass(slots=True)
class Session:
    """What one invocation asked for beside its verb."""

    debug: bool = False


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).debug = True


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    is_eager=True,
    help="Show the traceback of an error.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _once_each(_: click.Context, __: click.Parameter, sets: tuple[str, ...]) -> tuple[str, ...]:
    keys = [text.partition("=")[0].strip() for text in sets]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"{twice!r} is given {keys.count(twice)} times; once is meant")
    return sets


set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_once_each,
    shell_complete=complete_set,
    help="Change one value of the scenario, as parallelism.dp_shard=16. Repeatable.",
)

steps_option = click.option(
    "--steps",
    type=click.IntRange(2, 1000),
    default=2,
    show_default=True,
    help="Steps to simulate: the first, in which optimizer states are born, and those after it.",
)


def scenario_argument(**settings: Any) -> Callable[[Any], Any]:
    """SCENARIO: a file, the name of a packaged one, or ``-`` for stdin."""
    return click.argument("scenario", **{"shell_complete": complete_scenario, **settings})


def _some_path(_: click.Context, __: click.Parameter, value: str | None) -> Path | None:
    if value == "":
        raise click.BadParameter("is empty; name a place, or . for this folder")
    return None if value is None else Path(value)


def out_option(metavar: str, help: str) -> Callable[[Any], Any]:
    """``--out``: where to write. An empty name (an unset variable) is not this folder."""
    return click.option("--out", type=click.Path(), metavar=metavar, callback=_some_path, help=help)


def verb(name: str, short: str) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command of a function that returns an exit code; ``short`` stands in the list."""

    def wrap(function: Callable[..., int]) -> click.Command:
        return click.command(name, short_help=short)(debug_option(function))

    return wrap
