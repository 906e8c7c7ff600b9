"""A kind of connection as a topology file describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One direction of a connection: bytes per second that large transfers reach, and seconds."""

    bytes_per_s: float
    latency_s: float

    @classmethod
    def read(cls, section: Section) -> Self:
        """From ``rate``, ``efficiency`` (default 1) and ``latency``; a ``source`` is required."""
        section.text("source")
        given = section.has("efficiency")
        efficiency = section.number("efficiency", 0, 1) if given else 1.0
        return cls(
            bytes_per_s=section.rate("rate") * efficiency,
            latency_s=section.time("latency"),
        )
