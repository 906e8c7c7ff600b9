"""``dryfit run``: does it fit, how fast is it, and why."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.cli.options import (
    json_option,
    out_option,
    scenario_argument,
    set_option,
    steps_option,
    verb,
)


@verb("run", "Does it fit, how fast is it, and why.")
@scenario_argument()
@json_option
@out_option("DIR", "Write result.json, memory.png and timeline.png there.")
@set_option
@steps_option
@click.option(
    "--fold/--no-fold",
    default=True,
    help="Play ranks that must behave alike once (the same answer, sooner), or every rank.",
)
@click.option("--memory-only", is_flag=True, help="Do not play the engine: no times.")
@click.option("--profile", is_flag=True, help="Say on stderr where dryfit's own time went.")
def run(
    scenario: str,
    as_json: bool,
    out: Path | None,
    sets: tuple[str, ...],
    steps: int,
    fold: bool,
    memory_only: bool,
    profile: bool,
) -> int:
    """Simulate SCENARIO and print the summary; exit 1 if it does not fit.

    SCENARIO is a file, the name of a packaged one (dryfit list scenarios), or - for stdin.
    """
    from simulator.cli.folder import OutFolder
    from simulator.cli.output import emit, emit_json, say
    from simulator.cli.stopwatch import Stopwatch
    from simulator.cli.terminal import show_summary

    watch = Stopwatch()
    folder = OutFolder(out) if out is not None else None
    with watch("imports"):
        from simulator.report.summary import build_summary
        from simulator.run import run as play
        from simulator.scenario import load
        from simulator.trace.result import summarise
    with watch("scenario"):
        loaded = load(scenario, sets)
    with watch("simulation"):
        trace = play(loaded, steps=steps, memory_only=memory_only, fold=fold)
    with watch("result"):
        result = summarise(trace)
    with watch("summary"):
        if as_json:
            emit_json(result.to_json())
        else:
            emit(show_summary(build_summary(result)))
    if folder is not None:
        with watch("pictures"):
            folder.write(result)
    if profile:
        say(watch.report(events=result.engine.events))
    return 0 if result.memory.fits else 1
