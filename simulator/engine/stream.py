"""A CUDA stream of one class of ranks: a first-in first-out queue of segments and collectives."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from simpy import Environment, Event, Timeout

from simulator.engine.communicator import Communicator, Meeting
from simulator.engine.compile import Join, Segment
from simulator.engine.device import Device
from simulator.engine.issue import Item
from simulator.engine.recorder import HOST_NAME, Recorder
from simulator.trace.timeline import SpanKind

if TYPE_CHECKING:
    from simulator.engine.host import HostRun

COMPUTE, OPTIMIZER = int(SpanKind.COMPUTE), int(SpanKind.OPTIMIZER)
COMMUNICATION = int(SpanKind.COMMUNICATION)
IDLE_HOST, IDLE_COMMUNICATION = int(SpanKind.IDLE_HOST), int(SpanKind.IDLE_COMMUNICATION)


class StreamRun:
    """Runs ``items`` in order; ``passed`` of them have completed.

    Only the compute stream has a ``device``: there collectives and segments slow each other, and
    all its time is accounted for. ``accounted`` is up to when, in ns.
    """

    def __init__(
        self,
        env: Environment,
        rank_class: int,
        index: int,
        items: Sequence[Item],
        recorder: Recorder,
        optimizer: frozenset[int],
        device: Device | None,
    ) -> None:
        """``optimizer``: the calls whose kernels belong to the optimizer phase."""
        self._env, self._class, self._index = env, rank_class, index
        self._recorder, self._optimizer, self._device = recorder, optimizer, device
        self._waiting: dict[int, Event] = {}
        self.items, self.passed, self.accounted = items, 0, 0
        self.meeting: Meeting | None = None
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def passing(self, count: int) -> Event:
        """Fires when ``count`` items have completed."""
        if count not in self._waiting:
            self._waiting[count] = Event(self._env)
        return self._waiting[count]

    def run(
        self,
        host: HostRun,
        streams: Sequence[StreamRun],
        communicators: Mapping[str, Communicator],
    ) -> Generator[Event, None, None]:
        """One item after the other."""
        env = self._env
        for item in self.items:
            yield from self._hold(item, host, streams)
            self.first.setdefault(item.call, int(env.now))
            operation = item.operation
            if type(operation) is Segment:
                begin = host.begins[item.epoch] + item.host
                if self._device is None:
                    yield from self._segment(item, operation, begin)
                else:
                    yield from self._shared_segment(item, operation, begin, self._device)
            elif type(operation) is Join:
                yield from self._collective(item, operation, communicators)
            self.last[item.call] = int(env.now)
            self.passed += 1
            if self._waiting and (waiting := self._waiting.pop(self.passed, None)):
                waiting.succeed()
        self._rest()

    def _hold(
        self, item: Item, host: HostRun, streams: Sequence[StreamRun]
    ) -> Generator[Event, None, None]:
        """Until the host has issued ``item`` and the events that it waits for have completed."""
        env = self._env
        if item.epoch >= len(host.begins):
            self._rest()
            yield host.entering(item.epoch)
        late = host.begins[item.epoch] + item.issue - env.now
        if late > 0:
            self._rest()
            yield Timeout(env, late)
        self._idle(item.call, IDLE_HOST, HOST_NAME)
        for other, count in item.fences:
            stream = streams[other]
            if stream.passed < count:
                self._rest()
                yield stream.passing(count)
                self._idle(item.call, IDLE_COMMUNICATION, stream.items[count - 1].name)

    def _segment(self, item: Item, segment: Segment, begin: int) -> Generator[Event, None, None]:
        """Kernels that nothing slows."""
        start = int(self._env.now)
        end = max(start + segment.work, begin + segment.lag)
        yield Timeout(self._env, end - start)
        self._span(item, self._kind(item), start)

    def _shared_segment(
        self, item: Item, segment: Segment, begin: int, device: Device
    ) -> Generator[Event, None, None]:
        """Kernels of the compute stream. What they lack the host for is put before them."""
        start = int(self._env.now)
        if begin + segment.issues[-1] <= start:
            activity = device.run(segment.work, ())
            yield activity.ends
        else:
            launches = [
                (begin + issue, work)
                for issue, work in zip(segment.issues, segment.durations, strict=True)
            ]
            issued = sum(work for at, work in launches if at <= start)
            activity = device.run(issued, [launch for launch in launches if launch[0] > start])
            yield activity.ends
            activity.settle()
            if activity.starved:
                self.accounted += activity.starved
                self._recorder.span(
                    self._class, self._index, item.call, IDLE_HOST, HOST_NAME,
                    start, self.accounted,
                )  # fmt: skip
        self._span(item, self._kind(item), self.accounted)

    def _collective(
        self, item: Item, join: Join, communicators: Mapping[str, Communicator]
    ) -> Generator[Event, None, None]:
        """Wait for the other members, then for the data."""
        self._rest()
        communicator = communicators[join.collective.group]
        meeting = communicator.join(self._class, self._index, join.collective)
        self.meeting = meeting
        yield meeting.over
        started = meeting.started or 0
        if self._device is not None:
            self._recorder.span(
                self._class, self._index, item.call, IDLE_COMMUNICATION, item.name,
                self.accounted, started,
            )  # fmt: skip
        self._span(item, COMMUNICATION, started)

    def _kind(self, item: Item) -> int:
        return OPTIMIZER if item.call in self._optimizer else COMPUTE

    def _span(self, item: Item, kind: int, start: int) -> None:
        self.accounted = now = int(self._env.now)
        self._recorder.span(self._class, self._index, item.call, kind, item.name, start, now)

    def _idle(self, call: int, kind: int, name: int) -> None:
        """The compute stream has done nothing since ``accounted``; this is why."""
        if self._device is not None:
            now = int(self._env.now)
            if now > self.accounted:
                self._recorder.span(self._class, self._index, call, kind, name, self.accounted, now)
                self.accounted = now

    def _rest(self) -> None:
        if self._device is not None:
            self._device.rest()
