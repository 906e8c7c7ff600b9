"""The traffic of classes of groups on classes of links, as the engine's integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.deploy.deployment import SCALE, Traffic
from simulator.deploy.groups import Variant
from simulator.deploy.incidence import Incidence
from simulator.deploy.loads import Loads


def class_traffic(
    loads: Sequence[Loads],
    group_class: Sequence[int],
    link_class: Mapping[int, int],
    incidence: Incidence,
    capacities: Sequence[float],
) -> tuple[tuple[int, ...], dict[int, dict[Variant, Traffic]]]:
    """Capacities of link classes, and each group class' traffic on them.

    Links of one class carry the same of every group class, so one of them stands for all; classes
    of equal capacity that always carry the same are the same constraint, and become one.
    """
    rows = _rows(group_class, link_class, incidence)
    constraints: dict[tuple[int, tuple[tuple[tuple[int, int], int], ...]], int] = {}
    weights: dict[tuple[int, int], dict[int, int]] = {}
    for link, row in sorted(rows.items()):
        key = round(capacities[link]) * SCALE, tuple(sorted(row.items()))
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
    group_class: Sequence[int], link_class: Mapping[int, int], incidence: Incidence
) -> dict[int, dict[tuple[int, int], int]]:
    """What the first link of each class carries, by (group class, column)."""
    weights = [tuple(round(one * SCALE) for one in vector) for vector in incidence.vectors]
    first: dict[int, int] = {}
    for link in sorted(link_class):
        first.setdefault(link_class[link], link)
    rows = {}
    for link in first.values():
        row: dict[tuple[int, int], int] = {}
        for (group, profile), times in incidence.users[link].items():
            for column, weight in enumerate(weights[profile]):
                if weight:
                    key = group_class[group], column
                    row[key] = row.get(key, 0) + times * weight
        rows[link] = row
    return rows
