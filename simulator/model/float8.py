"""Which linears multiply in float8."""

from __future__ import annotations

from collections.abc import Sequence

LINEARS = "linears"
"""``Shape.float8``: the blocks' linears multiply in float8, and cast their weights themselves."""

GATHERED = "gathered"
"""``Shape.float8``: likewise, but the weights come in float8."""

MULTIPLE = 16
"""``torch._scaled_mm`` takes sizes that are multiples of it; torchtitan leaves other linears."""


def takes_float8(shape: Sequence[int]) -> bool:
    """Whether a linear of that weight is converted.

    >>> takes_float8((4096, 11008)), takes_float8((1999, 200))
    (True, False)
    """
    return all(size % MULTIPLE == 0 for size in shape)
