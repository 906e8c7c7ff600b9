"""``dryfit validate``: how right it is, case by case, and where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.options import json_option, verb

if TYPE_CHECKING:
    from simulator.scenario import Inexpressible, Scenario
    from simulator.study.cases import Case
    from simulator.study.errors_of import Summary
    from simulator.study.validate import Validation

_HEADERS = ("case", "quantity", "predicted", "measured", "error", "verdict")


@verb("validate", "Predicted against measured, with the error.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@json_option
def validate(files: tuple[str, ...], as_json: bool) -> int:
    """Hold predictions against what real runs measured; exit 1 out of bounds, or with no case.

    FILE is a scenario with measured:, or a reference set: base: and cases: [{id, set, measured}].
    A case whose lacks: names what no key can say is a miss, as one that is refused.
    Without one: every packaged scenario that has it, and the packaged sets.

    \b
    Bounds, which nine of ten cases of a kind must keep, or the exit code is 1:
      peak memory, allocated  5 %
      peak memory, reserved   8 % (skipped: this version predicts allocated only)
      step time               20 %
    Every fits verdict must be right, unless the peak is within 5 % of the limit.

    A case with trust: C, for a source not to be relied on that far, is shown and does not count;
    A and B count alike. Active memory is shown too: it is predicted as
    allocated, and has no bound yet.
    """
    from simulator.cli.output import emit, emit_json, say
    from simulator.study.validate import UNMEASURED
    from simulator.study.validate import validate as hold_against

    validation = hold_against(_scenarios(files))
    if as_json:
        emit_json(validation.to_json())
    else:
        emit(_report(validation))
    if files and not validation.cases and all(s.why == UNMEASURED for s in validation.skipped):
        say("nothing was compared: name a scenario with measured:")
        return 1
    return 0 if validation.holds else 1


def _scenarios(files: tuple[str, ...]) -> Mapping[str, Scenario | Inexpressible]:
    """By id: a case's own or the file's stem; with its file where two are the same."""
    from simulator.data import data_dir, data_names
    from simulator.scenario import load

    if not files:
        packaged = {name: load(name) for name in data_names("scenarios")}
        measured: dict[str, Scenario | Inexpressible] = {
            name: scenario for name, scenario in packaged.items() if scenario.measured
        }
        for path in sorted((data_dir("scenarios") / "published").glob("*.yaml")):
            measured |= {name: scenario for _, name, scenario in _of_file(str(path))}
        return measured
    found = [each for name in files for each in _of_file(name)]
    names = [each[1] for each in found]
    return {name if names.count(name) == 1 else other: scenario for other, name, scenario in found}


def _of_file(name: str) -> Iterator[tuple[str, str, Scenario | Inexpressible]]:
    """(a name that no other file has, the short one, scenario) of each case in a file."""
    from simulator.scenario import load, load_cases

    cases = load_cases(name) if name != "-" else None  # stdin can be read once
    if cases is None:
        yield name, Path(name).stem, load(name)
    else:
        yield from ((f"{name}: {case}", case, scenario) for case, scenario in cases.items())


def _report(validation: Validation) -> str:
    """The table, the errors in words, and what could not be compared."""
    from simulator.cli.output import table

    rows = [_row(case) for case in validation.cases]
    parts = [table(_HEADERS, rows, numbers=_HEADERS[2:5])] if rows else []
    if validation.summary:
        parts.append("\n".join(_sentence(*item) for item in validation.summary.items()))
    misses = dict.fromkeys((c.id, c.why) for c in validation.cases if c.why)
    if misses:
        parts.append("\n".join(f"missed {name}: {why}" for name, why in misses))
    notes = list(_why_shown(validation.cases))
    if notes:
        parts.append("\n".join(notes))
    if validation.skipped:
        parts.append("\n".join(f"skipped {skip.id}: {skip.why}" for skip in validation.skipped))
    return "\n\n".join(parts or ["nothing to validate: no scenario has measured:"])


def _why_shown(cases: Iterable[Case]) -> Iterator[str]:
    """Why cases are shown and not judged."""
    shown = [case for case in cases if case.verdict == "shown"]
    if any(case.counter == "active" for case in shown):
        yield (
            "shown, active: predicted as allocated, since FSDP2 marks no block for other streams; "
            "no bound\nis stated for it yet: not judged"
        )
    if any(case.counter != "active" for case in shown):
        yield "shown, others: trust: C in the file, or a fits verdict within 5 % of the limit"


def _row(case: Case) -> list[str]:
    quantity = case.quantity.replace("_", " ")
    return [
        case.id,
        f"{quantity}, {case.counter}" if case.counter else quantity,
        "–" if case.predicted is None else _shown(case.predicted, case.unit),
        _shown(case.measured, case.unit),
        "" if case.error_pct is None else f"{case.error_pct:+.1f} %",
        case.verdict,
    ]


def _shown(value: float | bool, unit: str) -> str:
    from simulator.units import format_bytes, format_time

    if unit == "bool":
        return "yes" if value else "no"
    if unit == "tokens/s/GPU":
        return f"{value:,.0f} tok/s/GPU"
    return format_bytes(int(value)) if unit == "bytes" else format_time(value)


def _sentence(quantity: str, summary: Summary) -> str:
    words = f"{quantity.replace('_', ' ')}: {summary.n} {'case' if summary.n == 1 else 'cases'}"
    if summary.missed:
        words += f" ({summary.missed} missed)"
    if summary.median_abs_pct is None:
        right = summary.n - summary.wrong - summary.missed
        return f"{words}, {right} right" if quantity == "fits" else words
    return (
        f"{words}, median error {summary.median_abs_pct:.1f} %, nine of ten within "
        f"{summary.p90_abs_pct:.1f} %, worst {summary.worst_error_pct:+.1f} % ({summary.worst})"
    )
