"""A recording in words: live bytes at the hook boundaries, peaks by phase and category."""

from __future__ import annotations

from collections.abc import Iterator

from recorder.tracing.events import BLOCK, Peak, Recording

MIB = 2**20


def report(recording: Recording, *, events: bool = False) -> Iterator[str]:
    """Lines for a reader; ``events``: every allocation and free between the marks as well."""
    yield f"live bytes at each boundary (storages in blocks of {BLOCK})"
    yield from _with_events(recording) if events else _marks(recording)
    yield "peaks"
    for phase, peak in recording.peaks().items():
        yield from _peak(phase, peak)


def _marks(recording: Recording) -> Iterator[str]:
    before = 0
    for mark in recording.marks:
        yield f"{mark.bytes:>16,} {mark.bytes - before:>+16,}  {mark.name}"
        before = mark.bytes


def _with_events(recording: Recording) -> Iterator[str]:
    marks = iter(recording.marks)
    mark = next(marks, None)
    for number in range(len(recording.events) + 1):
        while mark is not None and mark.event == number:
            yield f"{mark.bytes:>16,}  --- {mark.name}"
            mark = next(marks, None)
        if number < len(recording.events):
            event = recording.events[number]
            what = event.op if event.change > 0 else "free"
            storage = event.storage
            place = f"{event.stream} {event.phase} {event.module}".rstrip()
            yield f"{event.change:>+16,}  #{storage.number} {storage.category} {what}  {place}"


def _peak(phase: str, peak: Peak) -> Iterator[str]:
    at = f"{peak.op} in {peak.module}" if peak.module else peak.op
    yield f"{peak.total:>16,}  {phase}: {peak.total / MIB:,.1f} MiB at {at}"
    for name, size in sorted(peak.by.items(), key=lambda part: -part[1]):
        yield f"{size:>16,}    {name}"
    streams = ", ".join(f"{name} {size:,}" for name, size in peak.streams.items())
    yield f"{'':16}    on streams: {streams}"
