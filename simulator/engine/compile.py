"""A block on one GPU as a short list of operations that streams can see.

Launches of one stream with nothing between them that another stream could see are one *segment*.
Times are ns of host time since the start of the block, or since the last ``HostWait`` in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simulator.program.instructions import (
    Collective,
    HostWait,
    Instruction,
    Launch,
    Record,
    Stream,
    Wait,
)
from simulator.program.program import Block

STREAMS = tuple(Stream)
INDEX = {stream: index for index, stream in enumerate(STREAMS)}
COMPUTE = INDEX[Stream.COMPUTE]


class Segment(NamedTuple):
    """Launches of one stream: ``durations[j]`` ns of work, issued at host time ``issues[j]``.

    At full rate it ends at ``max(start + work, host + lag)`` where ``host`` is the host time that
    ``issues`` count from and ``lag = max_j(issues[j] + durations[j] + durations[j+1] + ...)``.
    """

    stream: int
    name: str
    durations: tuple[int, ...]
    issues: tuple[int, ...]
    work: int
    lag: int


class Join(NamedTuple):
    """A collective, enqueued at host time ``issue``."""

    stream: int
    collective: Collective
    issue: int


class SetEvent(NamedTuple):
    """cudaEventRecord."""

    stream: int
    event: int


class AwaitEvent(NamedTuple):
    """cudaStreamWaitEvent."""

    stream: int
    event: int


class Pause(NamedTuple):
    """The host thread reaches a ``HostWait`` at host time ``issue``."""

    event: int
    issue: int


Operation = Segment | Join | SetEvent | AwaitEvent | Pause


class Compiled(NamedTuple):
    """``host_ns`` is what the host pays in the block (after its last Pause)."""

    operations: tuple[Operation, ...]
    host_ns: int
    launches: int


class HostCosts(NamedTuple):
    """ns of host time for each kind of instruction."""

    launch: int
    collective: int
    event: int


def segment(stream: int, name: str, launches: Sequence[tuple[int, int]]) -> Segment:
    """A segment of (duration, host time of issue) pairs.

    >>> segment(0, "mlp", [(10, 5), (1, 10)]).lag
    16
    """
    work = lag = 0
    for duration, issue in reversed(launches):
        work += duration
        lag = max(lag, issue + work)
    durations, issues = zip(*launches, strict=True)
    return Segment(stream, name, durations, issues, work, lag)


class _Compiler:
    """Walks a block once; ``open`` are the launches not yet closed into a segment."""

    def __init__(self, block: Block, durations: Sequence[int], costs: HostCosts) -> None:
        self.name, self.costs = block.name, costs
        self.durations = iter(durations)
        self.open: dict[int, list[tuple[int, int]]] = {}
        self.operations: list[Operation] = []
        self.clock = 0

    def close(self, stream: int) -> None:
        """End the segment of ``stream``: something that others can see comes next."""
        if launches := self.open.pop(stream, None):
            self.operations.append(segment(stream, self.name, launches))

    def add(self, instruction: Instruction) -> None:
        match instruction:
            case Launch(stream=stream):
                self.clock += self.costs.launch
                launches = self.open.setdefault(INDEX[stream], [])
                launches.append((next(self.durations), self.clock))
            case Collective(stream=stream):
                self.clock += self.costs.collective
                self.close(INDEX[stream])
                self.operations.append(Join(INDEX[stream], instruction, self.clock))
            case Record(event=event, stream=stream):
                self.clock += self.costs.event
                self.close(INDEX[stream])
                self.operations.append(SetEvent(INDEX[stream], event))
            case Wait(event=event, stream=stream):
                self.clock += self.costs.event
                self.close(INDEX[stream])
                self.operations.append(AwaitEvent(INDEX[stream], event))
            case HostWait(event=event):
                self.close_all()
                self.operations.append(Pause(event, self.clock))
                self.clock = 0
            case _:
                pass

    def close_all(self) -> None:
        for stream in tuple(self.open):
            self.close(stream)


def compile_block(block: Block, durations: Sequence[int], costs: HostCosts) -> Compiled:
    """The operations of ``block`` whose j-th Launch takes ``durations[j]`` ns."""
    compiler = _Compiler(block, durations, costs)
    for instruction in block.instructions:
        compiler.add(instruction)
    compiler.close_all()
    return Compiled(tuple(compiler.operations), compiler.clock, len(durations))
