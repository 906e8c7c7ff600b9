"""Data go to stdout, words to stderr. Nothing else in dryfit writes to either."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import click

from simulator.cli.terminal import on_terminal
from simulator.errors import UserError


def emit(text: str) -> None:
    """Write data to stdout. A reader that has gone away is no error; a full disk is the user's."""
    if sys.stdout is None:
        raise UserError("stdout is closed: nowhere to write the answer")
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
    except OSError as error:
        _let_go_of_stdout()
        raise UserError(f"cannot write to stdout: {error.strerror}") from None


def emit_json(value: Mapping[str, object]) -> None:
    """Write the one object of ``--json``."""
    emit(json.dumps(value, indent=2, allow_nan=False))


def say(words: str) -> None:
    """Write words to stderr; lost without complaint if nobody can read them."""
    with suppress(OSError, AttributeError):
        click.echo(words, err=True)


def complain(words: str) -> None:
    """Say what went wrong."""
    say(f"dryfit: {words}")


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()
) -> str:
    """A table: drawn for a terminal, plain where stdout is piped.

    ``numbers`` are the headers whose columns are aligned to the right.
    """
    right = [header in numbers for header in headers]
    if on_terminal():
        return _drawn(headers, rows, right)
    return plain_table(headers, rows, right)


def plain_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]
) -> str:
    """The columns, padded with spaces.

    >>> print(plain_table(["gpu", "GiB"], [["a100", "79.1"], ["h200", "139.8"]], [False, True]))
    gpu     GiB
    a100   79.1
    h200  139.8
    """
    lines = [headers, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _drawn(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for header, flush in zip(headers, right, strict=True):
        table.add_column(escape(header), justify="right" if flush else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().strip("\n")


def _let_go_of_stdout() -> None:
    """Point stdout at nothing, so that what is left in its buffer cannot fail again at exit."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
