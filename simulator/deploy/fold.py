"""Which ranks, groups and links must behave alike: partition refinement.

Start from what tells them apart by themselves (program and GPU; axis and latencies; capacity) and
split until all of a class meet the same classes equally often: the coarsest equitable partition.
The max-min allocation is unique, so it is constant on these classes, and playing one of each is
exact. What breaks a symmetry, a slow GPU or link, splits just what it touches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from simulator.deploy.groups import Group
from simulator.deploy.traffic import Loads


class Partition(NamedTuple):
    """The class of each rank, group and link, numbered in order of first appearance."""

    ranks: tuple[int, ...]
    groups: tuple[int, ...]
    links: tuple[int, ...]


def number(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """Equal keys get equal numbers.

    >>> number("abca")
    (0, 1, 2, 0)
    """
    seen: dict[Hashable, int] = {}
    return tuple([seen.setdefault(key, len(seen)) for key in keys])


def one_of_each(ranks: int, groups: int, links: int) -> Partition:
    """Nothing folded: every rank, group and link is its own class."""
    return Partition(tuple(range(ranks)), tuple(range(groups)), tuple(range(links)))


def one_world(ranks: int, groups: int, links: int) -> Partition:
    """All ranks alike and every group all of them: one class, whatever the links are."""
    return Partition((0,) * ranks, tuple(range(groups)), tuple(range(links)))


class _Incidence(NamedTuple):
    """Who meets whom. ``on[group][link]`` numbers what the group puts on the link."""

    members: Sequence[Sequence[int]]
    groups_of: Sequence[Sequence[int]]
    on: Sequence[Mapping[int, int]]
    users: Sequence[Sequence[tuple[int, int]]]


def refine(
    ranks: Sequence[Hashable],
    links: Sequence[Hashable],
    groups: Sequence[Group],
    loads: Sequence[Loads],
) -> Partition:
    """The coarsest partition; ``ranks[r]`` and ``links[l]`` tell apart what is not alike."""
    incidence = _incidence(len(ranks), len(links), groups, loads)
    kinds = (
        (group.axis, tuple(load.latency_ns.items()))
        for group, load in zip(groups, loads, strict=True)
    )
    coarse, fine = None, Partition(number(ranks), number(kinds), number(links))
    while fine != coarse:
        coarse, fine = fine, _split(fine, incidence)
    return fine


def _incidence(
    ranks: int, links: int, groups: Sequence[Group], loads: Sequence[Loads]
) -> _Incidence:
    groups_of: list[list[int]] = [[] for _ in range(ranks)]
    users: list[list[tuple[int, int]]] = [[] for _ in range(links)]
    on: list[dict[int, int]] = []
    numbers: dict[Hashable, int] = {}
    for index, (group, load) in enumerate(zip(groups, loads, strict=True)):
        for member in group.members:
            groups_of[member].append(index)
        shape = tuple(load.column_of.values())
        profile = {}
        for link in dict.fromkeys(link for column in load.columns for link in column):
            vector = shape, tuple([column.get(link, 0.0) for column in load.columns])
            profile[link] = numbers.setdefault(vector, len(numbers))
            users[link].append((index, profile[link]))
        on.append(profile)
    return _Incidence([group.members for group in groups], groups_of, on, users)


def _split(now: Partition, incidence: _Incidence) -> Partition:
    """Tell apart what meets different classes, or the same ones not equally often."""
    rank, group, link = now
    return Partition(
        ranks=number(
            (rank[index], tuple([group[of] for of in groups]))
            for index, groups in enumerate(incidence.groups_of)
        ),
        groups=number(
            (
                group[index],
                tuple(sorted([rank[member] for member in members])),
                tuple(sorted([(link[at], load) for at, load in on.items()])),
            )
            for index, (members, on) in enumerate(zip(incidence.members, incidence.on, strict=True))
        ),
        links=number(
            (link[index], tuple(sorted([(group[by], load) for by, load in users])))
            for index, users in enumerate(incidence.users)
        ),
    )
