"""Why the simulation stopped early: who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simulator.engine.communicator import Communicator
from simulator.engine.compile import STREAMS, Join
from simulator.engine.host import HostRun
from simulator.engine.issue import Fence
from simulator.engine.stream import StreamRun

SHOWN = 12
"""How many waits a message spells out."""


def waits(
    rank_class: int,
    host: HostRun,
    streams: Sequence[StreamRun],
    communicators: Mapping[str, Communicator],
    names: Sequence[str],
) -> Iterator[str]:
    """One sentence for the host thread and each stream of a class that have not finished."""
    if pause := host.blocked_at:
        yield f"class {rank_class}, host thread: waits for {_spell(pause.fence, streams, names)}"
    for index, stream in enumerate(streams):
        if stream.passed < len(stream.items):
            reason = _reason(stream, host, streams, communicators, names)
            yield f"class {rank_class}, stream {STREAMS[index].value}: {reason}"


def _reason(
    stream: StreamRun,
    host: HostRun,
    streams: Sequence[StreamRun],
    communicators: Mapping[str, Communicator],
    names: Sequence[str],
) -> str:
    item = stream.items[stream.passed]
    if item.epoch >= len(host.begins):
        return "waits for the host thread"
    for fence in item.fences:
        if streams[fence[0]].passed < fence[1]:
            return f"waits for {_spell(fence, streams, names)}"
    assert isinstance(item.operation, Join)
    assert stream.meeting is not None
    collective = item.operation.collective
    missing = communicators[collective.group].missing(stream.meeting)
    return (
        f"{collective.kind} {names[item.name]!r} of group {collective.group} "
        f"waits for class {', '.join(map(str, missing[:SHOWN]))}"
    )


def _spell(fence: Fence, streams: Sequence[StreamRun], names: Sequence[str]) -> str:
    stream, count = fence
    item = streams[stream].items[count - 1]
    return f"{names[item.name]!r} on stream {STREAMS[stream].value}"
