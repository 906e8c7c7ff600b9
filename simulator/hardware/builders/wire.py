"""A kind of connection as a topology file describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One direction of a connection: bytes per second and seconds.

    ``bytes_per_s`` is what collectives reach on it, ``copies_per_s`` what one large copy does.
    """

    bytes_per_s: float
    copies_per_s: float
    latency_s: float

    @classmethod
    def read(cls, section: Section) -> Self:
        """From ``rate``, ``efficiency`` (default 1) and ``latency``; a ``source`` is required."""
        section.text("source")
        given = section.has("efficiency")
        efficiency = section.number("efficiency", 0, 1) if given else 1.0
        rate = section.rate("rate")
        return cls(
            bytes_per_s=rate * efficiency,
            copies_per_s=rate,
            latency_s=section.time("latency"),
        )

    @classmethod
    def below(cls, file: Section, key: str) -> Self:
        """From the map below ``key`` of a file. Raises UserError."""
        with file.section(key).closing() as section:
            return cls.read(section)
