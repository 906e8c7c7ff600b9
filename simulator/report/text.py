"""A summary as plain text: what a pipe, a file and a log get."""

from __future__ import annotations

import textwrap

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
        out += ["", "Warnings"]
        for warning in summary.warnings:
            out += textwrap.wrap(warning, width, initial_indent="  ! ", subsequent_indent="    ")
    return "\n".join(out) + "\n"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)
