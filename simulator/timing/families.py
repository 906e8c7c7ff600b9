"""Which GPU family lends its curve to one that nobody has measured in public."""

from __future__ import annotations

from collections.abc import Collection

from simulator.timing.constants import constants

LAST_RESORT = "H100"
"""The best measured family: used where no relative is known."""


def lender(family: str, measured: Collection[str]) -> str:
    """The family among ``measured`` whose curve ``family`` uses: itself, else the nearest.

    Its own relatives in order are tried, for each of them those that count it among theirs.

    >>> lender("H200", ["A100", "H100"])
    'H100'
    >>> lender("H100", ["H200", "GB200"])
    'H200'
    """
    for candidate in (family, *_relatives(family), LAST_RESORT):
        if candidate in measured:
            return candidate
        heirs = [one for one in measured if candidate in _relatives(one)]
        if heirs:
            return min(heirs, key=lambda one: (_relatives(one).index(candidate), one))
    return min(measured)


def why_nearest(family: str) -> str:
    """What makes the nearest relative of ``family`` the nearest."""
    found: list[str] | None = constants("kernels")["nearest"].get(family)
    return found[1] if found else "no relative of it is measured"


def _relatives(family: str) -> list[str]:
    nearest = constants("kernels")["nearest"]
    found = []
    while family in nearest:
        family = nearest[family][0]
        found.append(family)
    return found
