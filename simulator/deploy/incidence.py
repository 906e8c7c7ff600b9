"""Who meets whom: members in groups, groups on links.

Under a symmetry only the first of those that are mapped onto each other stand here, and say how
often they meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from simulator.deploy.groups import Group
from simulator.deploy.loads import Loads
from simulator.deploy.symmetry import Symmetry

Times = Mapping[tuple[int, int], int]
"""How often, by (link or group, profile)."""


class Incidence(NamedTuple):
    """``profile`` numbers what a group puts on a link: ``vectors[profile]``, by column.

    ``groups_of`` and ``users`` are by rank and link, ``members`` and ``on`` by group.
    """

    members: Sequence[Mapping[int, int]]
    groups_of: Mapping[int, Sequence[int]]
    on: Sequence[Times]
    users: Mapping[int, Times]
    vectors: Sequence[tuple[float, ...]]


def meetings(
    ranks: Sequence[int],
    groups: Sequence[Group],
    loads: Sequence[Loads],
    symmetry: Symmetry,
    first_link: Callable[[int], int],
) -> Incidence | None:
    """Of ``ranks``; None where a group's traffic is not as symmetric as its members."""
    groups_of: dict[int, list[int]] = {rank: [] for rank in ranks}
    users: dict[int, dict[tuple[int, int], int]] = {}
    on: list[Times] = []
    numbers: dict[Hashable, int] = {}
    vectors: list[tuple[float, ...]] = []
    members = []
    for index, (group, load) in enumerate(zip(groups, loads, strict=True)):
        members.append(Counter(map(symmetry.rank, group.members)))
        for member in members[-1]:
            groups_of[member].append(index)
        share = symmetry.times(group.axis)
        shape = tuple(load.column_of.values())
        found: dict[tuple[int, int], int] = {}
        for (link, vector), times in _vectors(load.columns, first_link).items():
            key = shape, vector
            profile = numbers.setdefault(key, len(numbers))
            if profile == len(vectors):
                vectors.append(vector)
            if share > 1 and times != share:
                return None
            found[link, profile] = times
            users.setdefault(link, {})[index, profile] = times // share
        on.append(found)
    return Incidence(members, groups_of, on, users, vectors)


def _vectors(
    columns: Sequence[Mapping[int, float]], first_link: Callable[[int], int]
) -> Counter[tuple[int, tuple[float, ...]]]:
    """What each link carries of every column; links that carry nothing are left out."""
    if len(columns) == 1:
        singles = Counter((first_link(link), load) for link, load in columns[0].items() if load > 0)
        return Counter({(link, (load,)): times for (link, load), times in singles.items()})
    links = dict.fromkeys(link for column in columns for link in column)
    every = ((first_link(k), tuple([column.get(k, 0.0) for column in columns])) for k in links)
    return Counter((link, vector) for link, vector in every if any(vector))
