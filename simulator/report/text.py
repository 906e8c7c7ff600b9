"""A summary as plain text: what a pipe, a file and a log get."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from simulator.report.summary import Summary
from simulator.report.table import lines


def render(summary: Summary, width: int = 92) -> str:
    """The summary in at most ``width`` columns, with a newline at the end."""
    out = [summary.title, *_wrapped(summary.setting, width), ""]
    for sentence in (summary.verdict, summary.speed, summary.peak):
        out += _wrapped(sentence, width)
    for section in summary.sections:
        out += ["", *lines(section, width)]
    if summary.warnings:
        out += ["", "Warnings", *warning_lines(summary.warnings, width)]
    return "\n".join(out) + "\n"


def warning_lines(warnings: Iterable[str], width: int = 92) -> Iterator[str]:
    """Warnings, one paragraph each."""
    for warning in warnings:
        yield from textwrap.wrap(warning, width, initial_indent="  ! ", subsequent_indent="    ")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)
