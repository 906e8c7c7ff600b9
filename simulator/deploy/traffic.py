"""The traffic of groups on links: by group as floats, then by class as the engine's integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulator.deploy.deployment import SCALE, Traffic
from simulator.deploy.groups import Group, Variant
from simulator.hardware.cluster import Link

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


def class_traffic(
    loads: Sequence[Loads],
    group_class: Sequence[int],
    link_class: Sequence[int],
    links: Sequence[Link],
) -> tuple[tuple[int, ...], dict[int, dict[Variant, Traffic]]]:
    """Capacities of link classes, and each group class' traffic on them.

    Links of one class carry the same of every group class, so one of them stands for all; classes
    of equal capacity that always carry the same are the same constraint, and become one.
    """
    rows = _rows(loads, group_class, link_class)
    constraints: dict[tuple[int, tuple[tuple[tuple[int, int], int], ...]], int] = {}
    weights: dict[tuple[int, int], dict[int, int]] = {}
    for link, row in sorted(rows.items()):
        key = round(links[link].bytes_per_s) * SCALE, tuple(sorted(row.items()))
        index = constraints.setdefault(key, len(constraints))
        for column, weight in row.items():
            weights.setdefault(column, {})[index] = weight
    traffic = {
        group: {
            variant: Traffic(
                latency_ns=load.latency_ns[variant],
                weights=tuple(weights.get((group, column), {}).items()),
            )
            for variant, column in load.column_of.items()
        }
        for group, load in zip(group_class, loads, strict=True)
    }
    return tuple(capacity for capacity, _ in constraints), traffic


def _rows(
    loads: Sequence[Loads], group_class: Sequence[int], link_class: Sequence[int]
) -> dict[int, dict[tuple[int, int], int]]:
    """What the first link of each class carries, by (group class, column)."""
    first: dict[int, int] = {}
    for link, index in enumerate(link_class):
        first.setdefault(index, link)
    rows: dict[int, dict[tuple[int, int], int]] = {}
    for group, load in zip(group_class, loads, strict=True):
        for column, on in enumerate(load.columns):
            key = group, column
            for link, per_byte in on.items():
                if per_byte > 0 and first[link_class[link]] == link:
                    row = rows.setdefault(link, {})
                    row[key] = row.get(key, 0) + round(per_byte * SCALE)
    return rows
