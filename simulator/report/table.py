"""A titled table of strings, and how it becomes plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows under a title. ``align`` has ``l`` or ``r`` a column; notes follow the rows.

    Without headers the columns stand bare. ``total`` draws a rule above the last row.
    """

    title: str
    align: str
    rows: tuple[tuple[str, ...], ...]
    headers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    total: bool = False


def bar(share: float, width: int = 24) -> str:
    """A bar of ``share`` (0..1) of ``width`` characters, to an eighth of one.

    >>> bar(0.5, 4), bar(0.25 / 8, 4), bar(0.0)
    ('██', '▏', '')
    """
    eighths = floor(min(max(share, 0.0), 1.0) * width * 8 + 0.5)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + _EIGHTHS[rest].strip()


def lines(section: Section, width: int) -> list[str]:
    """The section as lines of at most ``width`` characters, so far as its numbers allow."""
    table = [*([section.headers] if section.headers else []), *section.rows]
    widths = _widths(table, section.align, width)
    out = textwrap.wrap(section.title, width)
    for i, row in enumerate(table):
        if section.total and i == len(table) - 1:
            out.append("  " + "─" * min(sum(widths[:2]) + 2, width - 2))
        out.append("  " + _row(row, section.align, widths))
    for note in section.notes:
        out += textwrap.wrap(note, width, initial_indent="  ", subsequent_indent="  ")
    return out


def _widths(table: Sequence[Sequence[str]], align: str, width: int) -> list[int]:
    """Each column as wide as its widest cell; the widest text columns give way."""
    widths = [max((len(row[c]) for row in table), default=0) for c in range(len(align))]
    texts = [c for c in range(len(align)) if align[c] == "l"]
    for _ in range(sum(widths) + 2 * len(widths) - width):
        widest = max(texts, key=lambda c: widths[c])
        widths[widest] = max(widths[widest] - 1, 1)
    return widths


def _row(row: Sequence[str], align: str, widths: Sequence[int]) -> str:
    cells = []
    for cell, side, width in zip(row, align, widths, strict=True):
        short = cell if len(cell) <= width else f"{cell[: width - 1]}…"
        cells.append(short.rjust(width) if side == "r" else short.ljust(width))
    return "  ".join(cells).rstrip()
