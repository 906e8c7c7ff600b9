"""A summary for a terminal: the text that a pipe gets, with the verdict coloured."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from simulator.report.summary import Summary

WIDTH = 92


def show_summary(summary: Summary) -> str:
    """The summary as stdout should have it."""
    from simulator.report.text import render

    if not on_terminal():
        return render(summary, WIDTH).rstrip("\n")
    text = render(summary, max(40, min(WIDTH, shutil.get_terminal_size().columns)))
    if not in_colour(os.environ):
        return text.rstrip("\n")
    return "\n".join(_coloured(text.splitlines(), summary))


def on_terminal() -> bool:
    """Whether a person is likely to read stdout as it is written."""
    return sys.stdout is not None and sys.stdout.isatty()


def in_colour(environment: Mapping[str, str]) -> bool:
    """Whether a terminal may be given colours (see no-color.org).

    >>> in_colour({"TERM": "xterm"}), in_colour({"NO_COLOR": "1"}), in_colour({"TERM": "dumb"})
    (True, False, False)
    """
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _coloured(lines: list[str], summary: Summary) -> Iterator[str]:
    titles = {summary.title, "Warnings", *(section.title for section in summary.sections)}
    for line in lines:
        if line in titles:
            yield click.style(line, bold=True)
        elif line and summary.verdict.startswith(line):
            yield click.style(line, bold=True, fg="green" if summary.fits else "red")
        elif line.startswith("  ! "):
            yield click.style(line, fg="yellow")
        else:
            yield line
