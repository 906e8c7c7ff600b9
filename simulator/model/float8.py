"""Which linears multiply in float8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8:
    """How the blocks' linears multiply in float8.

    ``gathered``: their weights come so, and are not cast. ``rowwise``: a scale for each row of an
    operand, not one a tensor. ``compiled``: the block is written as the compiler sees it.
    """

    gathered: bool = False
    rowwise: bool = False
    compiled: bool = False


MULTIPLE = 16
"""``torch._scaled_mm`` takes sizes that are multiples of it; torchtitan leaves other linears."""


def takes_float8(shape: Sequence[int]) -> bool:
    """Whether a linear of that weight is converted.

    >>> takes_float8((4096, 11008)), takes_float8((1999, 200))
    (True, False)
    """
    return all(size % MULTIPLE == 0 for size in shape)
