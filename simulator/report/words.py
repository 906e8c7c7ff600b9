"""How the views say things: the verdict, places, sizes, shares. One wording everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from simulator.trace.memory import LiveTensor, MemoryReport, PhasePeak

TIGHT = 0.05
"""Share of the usable bytes; verdicts closer to the limit than this are called tight.

Predictions of peak memory are held to be right outside a band of 5 %.
"""


def gib(size: int, decimals: int = 1) -> str:
    """``size`` bytes in GiB, the number alone; never 0 for something, a dash for nothing.

    >>> gib(3 * 2**29), gib(2**20, 2), gib(0)
    ('1.5', '<0.01', '–')
    """
    if size == 0:
        return "–"
    number = f"{Decimal(size) / 2**30:,.{decimals}f}"
    return number if float(number.replace(",", "")) else f"<{10.0**-decimals:.{decimals}f}"


def percent(part: float, whole: float, decimals: int = 0) -> str:
    """``part`` of ``whole`` as ``23 %``; never 0 for something, a dash of nothing.

    >>> percent(1, 4), percent(1, 1e6, 1), percent(1, 0)
    ('25 %', '<0.1 %', '–')
    """
    if not whole:
        return "–"
    least, share = 10.0**-decimals, 100 * part / whole
    return f"<{least:.{decimals}f} %" if 0 < share < least / 2 else f"{share:.{decimals}f} %"


def verdict(peak: int, usable: int) -> str:
    """Whether ``peak`` bytes fit in ``usable`` bytes, and by how much.

    >>> verdict(61 * 2**30, 79 * 2**30)
    'FITS: 61.0 of 79.0 GiB usable, 18.0 GiB headroom (23 %)'
    >>> verdict(91 * 2**30, 79 * 2**30)
    'DOES NOT FIT: needs 12.0 GiB more (91.0 of 79.0 GiB usable)'
    """
    left = usable - peak
    if left < 0:
        more = gib(-left) if -left >= 2**29 else gib(-left, 3)
        return f"DOES NOT FIT: needs {more} GiB more ({gib(peak)} of {gib(usable)} GiB usable)"
    word = "FITS, TIGHTLY" if left < TIGHT * usable else "FITS"
    headroom = f"{gib(left)} GiB headroom ({percent(left, usable)})"
    return f"{word}: {gib(peak)} of {gib(usable)} GiB usable, {headroom}"


def allocating(report: MemoryReport, peak: PhasePeak | None = None) -> str:
    """What is being allocated at ``peak`` (default: the highest), with its size if known."""
    found = peak or report.peak
    for tensor in report.alive_at_peak if found == report.peak else ():
        if (tensor.name, tensor.module) == (found.tensor, found.at):
            return f"{found.tensor} ({gib(tensor.bytes, 2)} GiB)"
    return found.tensor


def rank_list(ranks: Iterable[int]) -> str:
    """Ranks in runs.

    >>> rank_list([0, 1, 2, 3, 8, 10, 11])
    '0–3, 8, 10–11'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def starred(name: str) -> str:
    """A module or tensor name with its layer number as ``*``, so that layers fall together.

    >>> starred("layers.31.mlp")
    'layers.*.mlp'
    """
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def by_name(tensors: Iterable[LiveTensor]) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(module, tensor, category), layers together, to (count, bytes in all); largest first."""
    groups: dict[tuple[str, str, str], tuple[int, int]] = {}
    for t in tensors:
        key = (starred(t.module), starred(t.name), t.category)
        count, size = groups.get(key, (0, 0))
        groups[key] = (count + 1, size + t.bytes)
    return dict(sorted(groups.items(), key=lambda item: -item[1][1]))
