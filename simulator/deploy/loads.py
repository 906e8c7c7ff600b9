"""What one group puts on links, as floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simulator.deploy.groups import Group, Variant

Column = Mapping[int, float]
"""Bytes per byte of message, by link."""

NS_PER_S = 1_000_000_000


class Loads(NamedTuple):
    """One group's traffic: ``columns[column_of[variant]]`` and ``latency_ns[variant]``."""

    columns: tuple[Column, ...]
    column_of: Mapping[Variant, int]
    latency_ns: Mapping[Variant, int]


def group_loads(group: Group) -> Loads:
    """Patterns that load the links alike, as those of one algorithm do, share a column."""
    columns: list[Column] = []
    column_of = {}
    for variant, pattern in group.patterns.items():
        loads = pattern.loads
        alike = (c for c, known in enumerate(columns) if known is loads or known == loads)
        column_of[variant] = column = next(alike, len(columns))
        if column == len(columns):
            columns.append(loads)
    latency_ns = {
        variant: round(pattern.latency_s(variant[1]) * NS_PER_S)
        for variant, pattern in group.patterns.items()
    }
    return Loads(tuple(columns), column_of, latency_ns)
