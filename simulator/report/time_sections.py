"""The sections of a summary that are about time and ranks; None where there is nothing to say."""

from __future__ import annotations

from simulator.report.table import Section, bar
from simulator.report.words import gib, percent, rank_list
from simulator.trace.result import Result
from simulator.units import format_flops, format_time

_CLASSES = 12
"""Rows of the table of rank classes."""

_TIME_WORDS = {
    "compute_s": "compute",
    "exposed_communication_s": "exposed communication",
    "bubble_s": "pipeline bubble",
    "host_s": "waiting for the host",
    "optimizer_s": "optimizer",
    "offload_s": "offload",
    "idle_s": "idle",
}


def speed(result: Result) -> Section | None:
    """Step time, tokens and FLOP rates."""
    step, first = result.step_time_s, result.first_step_time_s
    if step is None or first is None:
        return None
    header, per_gpu = result.trace.header, result.tokens_per_s_per_gpu or 0.0
    rate = format_flops((result.tflops_per_gpu or 0.0) * 1e12)
    rows = (
        ("step time", format_time(step, 4), f"first step {format_time(first, 4)}"),
        ("tokens/s/GPU", f"{per_gpu:,.0f}", f"{result.tokens_per_s or 0.0:,.0f} tokens/s in all"),
        ("MFU", percent(result.mfu or 0.0, 1, 1), f"{rate} a GPU in model FLOPs"),
        ("HFU", percent(result.hfu or 0.0, 1, 1), "recomputed FLOPs added, counted as for MFU"),
    )
    peak = format_flops(header.peak_flops)
    note = (
        f"Model FLOPs: 6 a matmul parameter and token, 12·L·h·s a token of attention; of the "
        f"dense peak, {peak}. Without compilation and start-up."
    )
    return Section(title="Speed", align="lrl", rows=rows, notes=(note,))


def where_time_goes(result: Result) -> Section | None:
    """The parts of the step on the slowest ranks' compute stream."""
    step = result.step_time_s
    if step is None:
        return None
    parts = {name: value for name, value in result.time.to_json().items() if value}
    rows = [
        (_TIME_WORDS[name], format_time(value, 4), percent(value, step, 1), bar(value / step))
        for name, value in sorted(parts.items(), key=lambda item: -(item[1] or 0.0))
        if value is not None
    ]
    return Section(title="Where the step goes", align="lrrl", rows=tuple(rows))


def ranks(result: Result) -> Section | None:
    """One row a class of ranks that behave alike; nothing where all do."""
    members: dict[int, list[int]] = {}
    for rank in result.ranks:
        members.setdefault(rank.rank_class, []).append(rank.rank)
    if len(members) == 1:
        return None
    order = sorted(members, key=lambda c: -result.ranks[members[c][0]].peak_allocated_bytes)
    rows = []
    for c in order[:_CLASSES]:
        first = result.ranks[members[c][0]]
        step = format_time(first.step_time_s, 4) if first.step_time_s is not None else "–"
        size = gib(first.peak_allocated_bytes, 2)
        rows.append((str(len(members[c])), size, step, first.device, rank_list(members[c])))
    more = len(order) - _CLASSES
    return Section(
        title="Ranks that behave alike",
        align="rrrll",
        headers=("ranks", "peak GiB", "step", "first device", "which"),
        rows=tuple(rows),
        notes=(f"and {more} more classes, whose peaks are no higher",) if more > 0 else (),
    )
