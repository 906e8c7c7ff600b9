"""A comparison in words: the table, then the causes of each difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.study.compare import Cause, Change, Comparison, Run

_HEADERS = (
    "run",
    "peak",
    "change",
    "reserved",
    "headroom",
    "where",
    "step",
    "change",
    "tok/s/GPU",
    "MFU",
)
_NUMBERS = ("peak", "change", "reserved", "headroom", "step", "tok/s/GPU", "MFU")
_SETTINGS = 12
"""How many settings that differ are listed."""


def show_comparison(found: Comparison, *, base_told: bool = False) -> str:
    """The table of base and changes, a paragraph of causes for each change, and the warnings.

    ``base_told``: the base's warnings have been shown.
    """
    from simulator.cli.output import table

    rows = [_row(found.base, None), *(_row(change.run, change) for change in found.changes)]
    columns = [i for i in range(len(_HEADERS)) if any(row[i] for row in rows)]
    headers = [_HEADERS[i] for i in columns]
    shown = table(headers, [[row[i] for i in columns] for row in rows], numbers=_NUMBERS)
    parts = ["\n".join(_paragraph(change)) for change in found.changes]
    return "\n\n".join([shown, *parts, *_warnings(found, base_told=base_told)])


def _warnings(found: Comparison, *, base_told: bool) -> Iterator[str]:
    """Each warning once: those of the base, then of each run those that the base has not."""
    from simulator.report.text import warning_lines

    told = set(found.base.warnings)
    own = [(change.run.name, change.run.warnings) for change in found.changes]
    of_base = () if base_told else found.base.warnings
    for name, warnings in [(found.base.name, of_base), *own]:
        new = [w for w in warnings if warnings is of_base or w not in told]
        if new:
            yield "\n".join([f"Warnings: {name}", *warning_lines(new)])


def _row(run: Run, change: Change | None) -> list[str]:
    memory, result = run.result.memory, run.result
    room, most = _gib(memory.headroom_bytes), "≤ " if result.at_least else ""
    return [
        run.name,
        _gib(memory.peak_allocated_bytes),
        "" if change is None else _signed_bytes(change.difference("peak_allocated_bytes") or 0),
        "" if memory.peak_reserved_bytes is None else _gib(memory.peak_reserved_bytes),
        room if memory.fits else f"{room}: DOES NOT FIT",
        f"step {memory.peak_step} {memory.peak_phase}, {memory.peak_at}",
        f"{'≥ ' if result.at_least else ''}{_time(result.step_time_s)}",
        "" if change is None else _step_change(change),
        "" if result.tokens_per_s_per_gpu is None else f"{most}{result.tokens_per_s_per_gpu:,.0f}",
        "" if result.mfu is None else f"{most}{100 * result.mfu:.1f} %",
    ]


def _step_change(change: Change) -> str:
    difference, base = change.difference("step_time_s"), change.base.result.step_time_s
    return "" if difference is None or not base else f"{100 * difference / base:+.1f} %"


def _paragraph(change: Change) -> Iterator[str]:
    """What was set, and the parts of memory and time that differ."""
    yield change.run.name
    for key, old, new in change.settings[:_SETTINGS]:
        yield f"  {key}: {old} -> {new}"
    if len(change.settings) > _SETTINGS:
        yield f"  and {len(change.settings) - _SETTINGS} more settings"
    peak = change.difference("peak_allocated_bytes") or 0
    yield f"  peak {_signed_bytes(peak)}{_because(change.memory, memory=True)}"
    step = change.difference("step_time_s")
    if step is not None:
        yield f"  step {_signed_time(step)}{_because(change.time, memory=False)}"


def _because(causes: tuple[Cause, ...], *, memory: bool) -> str:
    said = [
        f"{cause.part.replace('_', ' ')} "
        f"{_signed_bytes(cause.difference) if memory else _signed_time(cause.difference)}"
        for cause in causes
    ]
    return f": {', '.join(said)}" if said else ""


def _gib(size: float) -> str:
    from simulator.units import format_bytes

    return format_bytes(int(size))


def _signed_bytes(size: float) -> str:
    """In GiB, or in MiB where that would show nothing."""
    from simulator.units import format_bytes

    if not size:
        return "0"
    unit = "GiB" if abs(size) >= 2**30 / 100 else "MiB" if abs(size) >= 2**20 / 100 else "B"
    shown = format_bytes(abs(int(size)), unit, None if unit == "B" else 2)
    return f"{'+' if size > 0 else '-'}{shown}"


def _time(seconds: float | None) -> str:
    from simulator.units import format_time

    return "" if seconds is None else format_time(seconds)


def _signed_time(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '-'}{_time(abs(seconds))}" if seconds else "0"
