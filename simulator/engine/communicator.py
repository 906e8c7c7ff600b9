"""Groups of ranks meet: a collective starts when every member's stream has reached it."""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment, Event

from simulator.deploy.deployment import GroupClass
from simulator.engine.device import Device
from simulator.engine.fabric import Fabric
from simulator.engine.transfer import Transfer
from simulator.errors import ProgramError
from simulator.program.instructions import Collective
from simulator.timing.prices import Ratio


class Meeting:
    """One collective: who has come, and ``over``, which fires when it has ended."""

    __slots__ = ("arrived", "collective", "over", "started")

    def __init__(self, env: Environment, collective: Collective) -> None:
        """Nobody has come yet."""
        self.collective, self.over = collective, Event(env)
        self.arrived: list[int] = []
        self.started: int | None = None


class Communicator:
    """The collectives of one group, matched in the order in which each stream reaches them."""

    def __init__(
        self,
        env: Environment,
        fabric: Fabric,
        group: GroupClass,
        devices: Sequence[Device],
        slowed: Ratio,
    ) -> None:
        """``devices[c]`` is that of class c; ``slowed``: ``Overlap.communication``."""
        self._env, self._fabric, self._group, self._slowed = env, fabric, group, slowed
        self._devices = [devices[member] for member in group.members]
        self._next: dict[tuple[int, int], int] = {}
        self._open: dict[tuple[int, int], Meeting] = {}
        self.played = 0

    def join(self, rank_class: int, stream: int, collective: Collective) -> Meeting:
        """``rank_class`` has reached ``collective`` on ``stream``; the last to come starts it."""
        turn = self._next.get((rank_class, stream), 0)
        self._next[rank_class, stream] = turn + 1
        meeting = self._open.get((stream, turn))
        if meeting is None:
            meeting = self._open[stream, turn] = Meeting(self._env, collective)
        self._check(meeting, rank_class, collective)
        meeting.arrived.append(rank_class)
        if len(meeting.arrived) == len(self._group.members):
            del self._open[stream, turn]
            self._start(meeting)
        return meeting

    def missing(self, meeting: Meeting) -> tuple[int, ...]:
        """The classes that have not come yet."""
        return tuple(c for c in self._group.members if c not in meeting.arrived)

    def _check(self, meeting: Meeting, rank_class: int, mine: Collective) -> None:
        first = meeting.collective
        if (mine.kind, mine.bytes) != (first.kind, first.bytes):
            raise ProgramError(
                f"group {self._group.axis}: class {rank_class} issues {_spell(mine)} "
                f"where class {meeting.arrived[0]} issues {_spell(first)}"
            )

    def _start(self, meeting: Meeting) -> None:
        collective = meeting.collective
        self.played += 1
        meeting.started = int(self._env.now)
        Transfer(
            self._env,
            self._fabric,
            self._group.traffic[collective.kind, collective.bytes],
            collective.bytes,
            self._devices,
            self._slowed,
            meeting.over.succeed,
        )


def _spell(collective: Collective) -> str:
    return f"{collective.kind} {collective.name!r} of {collective.bytes} B"
