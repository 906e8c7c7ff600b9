"""A result as pandas tables. pandas is an extra: without it one sentence says how to get it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from simulator.errors import UnknownNameError, UserError
from simulator.trace.curve import curve_points
from simulator.trace.timeline import SpanKind

if TYPE_CHECKING:
    from simulator.trace.result import Result

Columns = Mapping[str, Any]


def frame(result: Result, kind: str) -> Any:
    """The table ``kind`` (one of ``KINDS``) of a result as a pandas DataFrame."""
    if kind not in KINDS:
        raise UnknownNameError("table", kind, KINDS)
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UserError("tables need pandas: pip install 'dryfit[data]'") from None
    return pandas.DataFrame(KINDS[kind](result))


def _ranks(result: Result) -> Columns:
    return _transposed([rank.to_json() for rank in result.ranks])


def _phases(result: Result) -> Columns:
    rows = []
    for phase in result.memory.phases:
        row = phase.to_json()
        del row["breakdown"]
        rows.append(row | {"tensor": phase.tensor} | dict(phase.breakdown))
    return _transposed(rows)


def _spans(result: Result) -> Columns:
    timeline = result.trace.timeline
    if timeline is None:
        raise UserError("no spans: the run was memory-only, so nothing has a time")
    spans = timeline.spans
    return {
        "class": spans.rank_class,
        "stream": spans.stream,
        "call": spans.call,
        "kind": [SpanKind(k).name.lower() for k in spans.kind.tolist()],
        "name": [spans.names[n] for n in spans.name.tolist()],
        "start_ns": spans.start,
        "end_ns": spans.end,
    }


def _curve(result: Result) -> Columns:
    names = ("step", "mark", "allocated_bytes", "reserved_bytes", "time_s")
    points = curve_points(result.trace)
    return {name: [point[i] for point in points] for i, name in enumerate(names)}


def _transposed(rows: list[dict[str, object]]) -> Columns:
    """Rows to columns; a key that a row lacks (a category it does not hold) is 0."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, 0) for row in rows] for name in names}


KINDS: Mapping[str, Callable[[Result], Columns]] = {
    "ranks": _ranks,
    "phases": _phases,
    "spans": _spans,
    "curve": _curve,
}
"""The tables that there are, by name."""
