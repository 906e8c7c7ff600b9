"""``dryfit run``: does it fit, how fast is it, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.completion import complete_allocator
from simulator.cli.options import (
    json_option,
    out_option,
    scenario_argument,
    set_option,
    steps_option,
    verb,
)

if TYPE_CHECKING:
    from simulator.report.summary import Summary
    from simulator.scenario import Scenario
    from simulator.study.compare import Comparison
    from simulator.trace.result import Result


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
@click.option(
    "--allocator",
    metavar="CONF",
    shell_complete=complete_allocator,
    help="off, default, expandable, or PYTORCH_CUDA_ALLOC_CONF; with --memory-only too.",
)
@click.option("--what-if", "ask", is_flag=True, help="Compare with each what_if: of the scenario.")
@click.option("--profile", is_flag=True, help="Say on stderr where dryfit's own time went.")
def run(
    scenario: str,
    as_json: bool,
    out: Path | None,
    sets: tuple[str, ...],
    steps: int,
    fold: bool,
    memory_only: bool,
    allocator: str | None,
    ask: bool,
    profile: bool,
) -> int:
    """Simulate SCENARIO and print the summary; exit 1 if it does not fit.

    SCENARIO is a file, the name of a packaged one (dryfit list scenarios), or - for stdin.
    """
    from simulator.cli.folder import OutFolder
    from simulator.cli.output import say
    from simulator.cli.stopwatch import Stopwatch

    watch = Stopwatch()
    folder = OutFolder(out) if out is not None else None
    with watch("imports"):
        from simulator.report.summary import build_summary
        from simulator.run import run as play
        from simulator.scenario import load
        from simulator.trace.result import summarise
    with watch("scenario"):
        if allocator is not None:
            sets = (*sets, f"allocator={allocator}")
        loaded = load(scenario, sets)
        variants = _variants(loaded) if ask else []
    with watch("simulation"):
        served = allocator is not None or not memory_only
        trace = play(loaded, steps=steps, memory_only=memory_only, fold=fold, allocator=served)
    with watch("result"):
        result = summarise(trace)
    with watch("what if"):
        beside = _beside(variants, result, steps, memory_only)
    with watch("summary"):
        _answer(result, None if as_json else build_summary(result), beside)
    if folder is not None:
        with watch("pictures"):
            folder.write(result)
    if profile:
        say(watch.report(events=result.engine.events))
    return 0 if result.memory.fits else 1


def _answer(result: Result, summary: Summary | None, beside: Comparison | None) -> None:
    """The summary in words, or without one JSON; then what the what_if: come to."""
    from simulator.cli.comparison import show_comparison
    from simulator.cli.output import emit, emit_json
    from simulator.cli.terminal import show_summary

    if summary is None:
        emit_json(result.to_json() | ({} if beside is None else {"what_if": beside.to_json()}))
        return
    emit(show_summary(summary))
    if beside is not None:
        emit(f"\nWhat if\n{show_comparison(beside, base_told=True)}")


def _beside(
    variants: list[tuple[str, Scenario]], result: Result, steps: int, memory_only: bool
) -> Comparison | None:
    if not variants:
        return None
    from simulator.study.compare import side_by_side

    return side_by_side(variants, result, steps=steps, memory_only=memory_only)


def _variants(scenario: Scenario) -> list[tuple[str, Scenario]]:
    """The scenario and what becomes of it under each what_if:, before anything is simulated."""
    from simulator.errors import UserError
    from simulator.study.compare import variants_of

    if not scenario.what_if:
        raise UserError("--what-if: the scenario has no what_if:; try dryfit compare with --set")
    return [("as it is", scenario), *variants_of(scenario)]
