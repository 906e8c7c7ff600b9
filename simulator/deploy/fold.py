"""Which ranks, groups and links must behave alike: partition refinement.

Start from what tells them apart by themselves (program and GPU; axis and latencies; capacity) and
split until all of a class meet the same classes equally often: the coarsest equitable partition.
The max-min allocation is unique, so it is constant on these classes, and playing one of each is
exact. What breaks a symmetry, a slow GPU or link, splits just what it touches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from simulator.deploy.incidence import Incidence


class Partition(NamedTuple):
    """The class of each rank, group and link, numbered in order of first appearance."""

    ranks: Mapping[int, int]
    groups: Sequence[int]
    links: Mapping[int, int]


def number(keys: Iterable[Hashable]) -> list[int]:
    """Equal keys get equal numbers.

    >>> number("abca")
    [0, 1, 2, 0]
    """
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def one_of_each(incidence: Incidence) -> Partition:
    """Nothing folded: every rank, group and link is its own class."""
    ranks = {rank: rank for rank in incidence.groups_of}
    return Partition(ranks, range(len(incidence.on)), _own(incidence))


def one_world(incidence: Incidence) -> Partition:
    """All ranks alike and every group all of them: one class, whatever the links are."""
    ranks = dict.fromkeys(incidence.groups_of, 0)
    return Partition(ranks, range(len(incidence.on)), _own(incidence))


def refine(
    incidence: Incidence,
    ranks: Sequence[Hashable],
    groups: Sequence[Hashable],
    links: Sequence[Hashable],
) -> Partition:
    """The coarsest partition; ``ranks[r]`` and so on tell apart what is not alike by itself."""
    coarse, fine = None, _start(incidence, ranks, groups, links)
    while fine != coarse:
        coarse, fine = fine, _split(fine, incidence)
    return fine


def _own(incidence: Incidence) -> Mapping[int, int]:
    return {link: index for index, link in enumerate(sorted(incidence.users))}


def _start(
    incidence: Incidence,
    ranks: Sequence[Hashable],
    groups: Sequence[Hashable],
    links: Sequence[Hashable],
) -> Partition:
    return Partition(
        _numbered((rank, ranks[rank]) for rank in incidence.groups_of),
        number(groups),
        _numbered((link, links[link]) for link in incidence.users),
    )


def _split(now: Partition, incidence: Incidence) -> Partition:
    """Tell apart what meets different classes, or the same ones not equally often."""
    rank, group, link = now
    return Partition(
        ranks=_numbered(
            (index, (rank[index], tuple([group[of] for of in groups])))
            for index, groups in incidence.groups_of.items()
        ),
        groups=number(
            (
                group[index],
                _counted([(rank[one], times) for one, times in members.items()]),
                _counted([((link[at], load), times) for (at, load), times in on.items()]),
            )
            for index, (members, on) in enumerate(zip(incidence.members, incidence.on, strict=True))
        ),
        links=_numbered(
            (index, (link[index], _counted([((group[by], p), t) for (by, p), t in users.items()])))
            for index, users in incidence.users.items()
        ),
    )


def _numbered(keys: Iterable[tuple[int, Hashable]]) -> dict[int, int]:
    seen: dict[Hashable, int] = {}
    return {index: seen.setdefault(key, len(seen)) for index, key in keys}


def _counted(meetings: Iterable[tuple[Hashable, int]]) -> frozenset[tuple[Hashable, int]]:
    """How often each, in all."""
    found: dict[Hashable, int] = {}
    for what, times in meetings:
        found[what] = found.get(what, 0) + times
    return frozenset(found.items())
