"""What a collective algorithm must say of itself, so that the others need not know it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from simulator.hardware.cluster import Cluster
from simulator.timing.collectives.pattern import Pattern

Members = tuple[int, ...]
"""Device indexes of a group's ranks, in rank order."""


class Transfer(NamedTuple):
    """Position ``source`` sends chunk ``chunk`` (1/n of S) to ``target``, which may add it up.

    Chunks are numbered over the group: what p holds for q of an all_to_all is chunk p·n + q.
    """

    source: int
    target: int
    chunk: int
    reduce: bool


class Channel(NamedTuple):
    """A copy of the schedule that carries ``share`` of the message.

    ``order[p]`` is the device at position p; between nodes it takes NIC ``rail``, or the one at
    ``lane`` among those beside the sender.
    """

    order: Members
    rail: int | None
    share: float
    lane: int | None = None


class Algorithm(Protocol):
    """One way to carry out collectives.

    ``steps`` and ``channels`` spell out who sends what to whom; ``pattern`` is what the clock
    uses, and must agree with them link by link.
    """

    def applies(self, kind: str, members: Members, cluster: Cluster) -> bool:
        """Whether it can carry out ``kind`` for this group."""
        ...

    def steps(self, kind: str, n: int) -> Iterable[Sequence[Transfer]]:
        """The schedule of n positions: transfers of one step are simultaneous."""
        ...

    def channels(self, members: Members, cluster: Cluster) -> Sequence[Channel]:
        """The copies of the schedule that run side by side; their shares add up to 1."""
        ...

    def pattern(self, kind: str, members: Members, cluster: Cluster) -> Pattern:
        """Latency and loads of ``kind`` for this group.

        Groups that differ only in which nodes they are on must load the links of those alike.
        """
        ...
