"""The order in which autograd makes the gradients of a model's weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simulator.lowering.units import Unit


class Arrival(NamedTuple):
    """A gradient: of which unit, its weight's name, its elements."""

    unit: int
    name: str
    numel: int


def arrivals(units: Sequence[Unit]) -> list[Arrival]:
    """Gradients of trained weights in the order in which backward makes them."""
    found: list[Arrival] = []
    for index, unit in reversed(list(enumerate(units))):
        sizes = {w.name: w.numel for w in unit.kind.graph.trained if not w.tied}
        for op in reversed(unit.kind.graph.ops):
            names = [made.weight for made in op.gradients if made.weight] + [op.accumulates]
            found += [Arrival(index, name, sizes[name]) for name in names if name in sizes]
    return found
