"""The events of a run and the peaks that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

BLOCK = 512
"""The caching allocator's unit: every request is rounded up to it."""


def rounded(size: int) -> int:
    """A request in whole blocks; nothing is asked for 0 bytes."""
    return -(-size // BLOCK) * BLOCK


@dataclass(slots=True, eq=False)
class Storage:
    """One tensor storage; ``category`` is settled when the run is over."""

    number: int
    category: str
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A storage got (``change`` > 0) or gave back so many bytes."""

    storage: Storage
    change: int
    stream: str
    op: str
    module: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Live bytes at a named point, which is before the ``event``-th event."""

    name: str
    bytes: int
    event: int


@dataclass(slots=True, kw_only=True)
class Peak:
    """The most that was live in a phase, at which allocation, and of what it was made."""

    total: int
    by: dict[str, int]
    streams: dict[str, int]
    module: str
    op: str


@dataclass(slots=True)
class Recording:
    """All that a run leaves: events in the host's order, and marks between them."""

    events: list[Event] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def peaks(self) -> dict[str, Peak]:
        """The peak of each phase, counted at allocations, the earliest where several are equal."""
        return peaks_of(self.events)


def peaks_of(events: Iterable[Event]) -> dict[str, Peak]:
    """Replay the events with each storage's last category."""
    peaks: dict[str, Peak] = {}
    by: Counter[str] = Counter()
    streams: Counter[str] = Counter()
    owner: dict[int, str] = {}
    total = 0
    for event in events:
        number = event.storage.number
        if event.change > 0:
            owner[number] = event.stream
        total += event.change
        by[event.storage.category] += event.change
        streams[owner[number]] += event.change
        known = peaks.get(event.phase)
        if event.change > 0 and (known is None or total > known.total):
            peaks[event.phase] = Peak(
                total=total,
                by=_present(by),
                streams=_present(streams),
                module=event.module,
                op=event.op,
            )
    return peaks


def _present(counter: Counter[str]) -> dict[str, int]:
    return {name: size for name, size in sorted(counter.items()) if size}
