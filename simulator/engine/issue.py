"""What a host thread issues, stream by stream, with CUDA events resolved.

Which work an event stands for depends on host order alone, so it needs no clock: a *fence*
(stream, n) is passed when the first n items of that stream have completed. Host time needs one
only at a ``HostWait``: times are ns since the start of an *epoch*, the stretch between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from simulator.engine.compile import STREAMS, AwaitEvent, Compiled, Join, Pause, Segment, SetEvent
from simulator.program.program import Block, Call, Phase, Program

Fence = tuple[int, int]


class Item(NamedTuple):
    """One entry of a stream. ``host``: start of its block's host time, ns into ``epoch``.

    ``issue``: when the host has enqueued it (a segment: its first launch), ns into ``epoch``.
    Without an ``operation`` it only holds the stream until its ``fences`` are passed.
    """

    operation: Segment | Join | None
    call: int
    name: int
    epoch: int
    host: int
    issue: int
    fences: tuple[Fence, ...]


class HostPause(NamedTuple):
    """The host thread waits for ``fence``, ``at`` ns into the epoch that this ends."""

    at: int
    fence: Fence


class Issued(NamedTuple):
    """All that one program issues. ``began`` and ``ended``: each call's host time, (epoch, ns)."""

    streams: tuple[tuple[Item, ...], ...]
    pauses: tuple[HostPause, ...]
    began: tuple[tuple[int, int], ...]
    ended: tuple[tuple[int, int], ...]
    optimizer: frozenset[int]
    launches: int


class _Issuer:
    """The host thread's state while it walks the calls."""

    def __init__(self, intern: Callable[[str], int], serial_groups: bool) -> None:
        self.intern, self.serial_groups = intern, serial_groups
        self.streams: list[list[Item]] = [[] for _ in STREAMS]
        self.pending: list[list[Fence]] = [[] for _ in STREAMS]
        self.waited: list[dict[int, int]] = [{} for _ in STREAMS]
        self.events: dict[int, Fence] = {}
        self.last_of_group: dict[str, Fence] = {}
        self.pauses: list[HostPause] = []
        self.epoch = self.clock = 0

    def run(self, index: int, call: Call, block: Block, compiled: Compiled) -> None:
        """Issue one call of a block."""
        bound, local = len(block.event_parameters), dict[int, Fence]()
        segment_name = self.intern(call.spell(block.name))
        for operation in compiled.operations:
            if type(operation) is Segment:
                self.push(operation.stream, operation, index, segment_name, operation.issues[0])
            elif type(operation) is Join:
                self.join(operation, index, self.intern(call.spell(operation.collective.name)))
            elif type(operation) is Pause:
                event = operation.event
                fence = self.events.get(call.events[event]) if event < bound else local.get(event)
                self.pause(fence, operation.issue)
            elif type(operation) is AwaitEvent:
                event = operation.event
                fence = self.events.get(call.events[event]) if event < bound else local.get(event)
                if fence is not None:
                    self.wait(operation.stream, fence)
            elif type(operation) is SetEvent:
                fence = self.record(operation.stream, index)
                if operation.event < bound:
                    self.events[call.events[operation.event]] = fence
                else:
                    local[operation.event] = fence
        self.clock += compiled.host_ns

    def push(
        self, stream: int, operation: Segment | Join | None, call: int, name: int, issue: int
    ) -> None:
        """Append to a stream, behind the waits that the stream has been given."""
        fences = tuple(self.pending[stream])
        if fences:
            self.pending[stream] = []
        host = self.clock
        self.streams[stream].append(
            Item(operation, call, name, self.epoch, host, host + issue, fences)
        )

    def join(self, operation: Join, call: int, name: int) -> None:
        """Append a collective; with ``serial_groups`` behind the group's last one."""
        group = operation.collective.group
        if self.serial_groups and group in self.last_of_group:
            self.wait(operation.stream, self.last_of_group[group])
        self.push(operation.stream, operation, call, name, operation.issue)
        self.last_of_group[group] = (operation.stream, len(self.streams[operation.stream]))

    def wait(self, stream: int, fence: Fence) -> None:
        """Later items of ``stream`` wait for ``fence``, unless they do already."""
        other, count = fence
        if other != stream and count > self.waited[stream].get(other, 0):
            self.waited[stream][other] = count
            self.pending[stream].append(fence)

    def record(self, stream: int, call: int) -> Fence:
        """The fence behind all that ``stream`` holds, waits included."""
        if self.pending[stream]:
            other, count = self.pending[stream][-1]
            self.push(stream, None, call, self.streams[other][count - 1].name, 0)
        return stream, len(self.streams[stream])

    def pause(self, fence: Fence | None, at: int) -> None:
        """The host waits: a new epoch begins. An unrecorded event makes it wait for nothing."""
        if fence is None:
            self.clock += at
            return
        self.pauses.append(HostPause(self.clock + at, fence))
        self.epoch, self.clock = self.epoch + 1, 0


def issue(
    program: Program,
    compiled: Sequence[Compiled],
    intern: Callable[[str], int],
    serial_groups: bool,
) -> Issued:
    """Walk ``program``, whose blocks are compiled in order, as its host thread does."""
    issuer = _Issuer(intern, serial_groups)
    began, ended = [], []
    for index, call in enumerate(program.calls):
        began.append((issuer.epoch, issuer.clock))
        issuer.run(index, call, program.blocks[call.block], compiled[call.block])
        ended.append((issuer.epoch, issuer.clock))
    return Issued(
        streams=tuple(tuple(items) for items in issuer.streams),
        pauses=tuple(issuer.pauses),
        began=tuple(began),
        ended=tuple(ended),
        optimizer=frozenset(
            i for i, call in enumerate(program.calls) if call.phase is Phase.OPTIMIZER
        ),
        launches=sum(compiled[call.block].launches for call in program.calls),
    )
