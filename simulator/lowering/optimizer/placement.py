"""What DTensor moves before a product of matrices: the cheapest by its own estimate.

Source: torch/distributed/tensor/_collective_utils.py and _ops/_einsum_strategy.py (2.13), on one
mesh axis. A tensor lies replicated (``R``), in parts of a sum (``P``), or cut into rows (``S0``)
or columns (``S1``). DTensor's estimate is not this project's: it takes every host to have an
NVLink of 87.7 GB/s and, past it, a network of 0.22 of that; it decides, and the clock is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod
from typing import NamedTuple

DEVICES_PER_HOST = 8
NVLINK_GB_PER_S, NETWORK_FACTOR = 87.7, 0.22
BASE_US, NVLINK_US, NETWORK_US = 6.6, 0.6, 2.7
EXCHANGE_PENALTY_US = 1.0
ITEMSIZE = 2

KINDS = {
    ("S", "R"): "all_gather",
    ("S", "S"): "all_to_all",
    ("P", "R"): "all_reduce",
    ("P", "S"): "reduce_scatter",
}
"""The collective of a move, by where from and where to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A bf16 matrix over ``ranks``."""

    shape: tuple[int, int]
    place: str
    ranks: int

    @property
    def local(self) -> tuple[int, int]:
        """What a rank has of it."""
        rows, columns = self.shape
        if self.place == "S0":
            return -(-rows // self.ranks), columns
        if self.place == "S1":
            return rows, -(-columns // self.ranks)
        return self.shape

    @property
    def padded(self) -> tuple[int, int]:
        """All ranks' parts."""
        rows, columns = self.local
        return (rows * self.ranks, columns) if self.place == "S0" else (rows, columns * self.ranks)

    @property
    def bytes(self) -> int:
        """Of what a rank has."""
        return prod(self.local) * ITEMSIZE

    @property
    def turned(self) -> Placed:
        """The transposed view."""
        place = {"S0": "S1", "S1": "S0"}.get(self.place, self.place)
        return replace(self, shape=self.shape[::-1], place=place)


class Choice(NamedTuple):
    """Where a product wants its factors, and where its result (and bias) lies."""

    out: str
    factors: tuple[str, str]


CHOICES = (
    Choice("R", ("R", "R")),
    Choice("P", ("S1", "S0")),
    Choice("S0", ("S0", "R")),
    Choice("S1", ("R", "S1")),
    Choice("P", ("P", "R")),
    Choice("P", ("R", "P")),
)


def cheapest(factors: tuple[Placed, Placed], bias: Placed | None) -> Choice:
    """The first of the cheapest.

    >>> wide = Placed(shape=(4096, 4096), place="S0", ranks=8)
    >>> cheapest((wide, wide.turned), None)
    Choice(out='P', factors=('S1', 'S0'))
    >>> small = Placed(shape=(64, 64), place="S0", ranks=8)
    >>> cheapest((small, small.turned), None).factors
    ('S0', 'R')
    """

    def cost(choice: Choice) -> float:
        moves = [*zip(factors, choice.factors, strict=True)]
        if bias is not None:
            moves.insert(0, (bias, choice.out))
        return sum(estimate_us(tensor, place) for tensor, place in moves)

    return min(CHOICES, key=cost)


def estimate_us(tensor: Placed, place: str) -> float:
    """DTensor's estimate of one move, in microseconds (``redistribute_cost``)."""
    if tensor.place in (place, "R"):
        return 0.0
    hops, ranks = tensor.ranks - 1, tensor.ranks
    near = ranks <= DEVICES_PER_HOST
    rate = NVLINK_GB_PER_S * (1 if near else NETWORK_FACTOR)
    latency = hops * (NVLINK_US if near else NETWORK_US)
    whole = prod(tensor.shape) * ITEMSIZE / 2**30

    def ring(size: float, times: int = 1) -> float:
        return BASE_US + times * (latency + size * hops / ranks / rate * 1e6)

    kind = KINDS.get((tensor.place[0], place[0]))
    if kind is None:
        return inf
    if kind == "all_to_all":
        return ring(whole / ranks) + EXCHANGE_PENALTY_US
    return ring(whole, 2 if kind == "all_reduce" else 1)
