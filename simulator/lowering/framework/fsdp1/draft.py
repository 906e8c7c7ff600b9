"""A hook of FSDP1's that is being put together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from simulator.lowering.framework.fsdp1.limiter import Freed
from simulator.lowering.framework.hooks import Hook, Write
from simulator.lowering.units import Unit
from simulator.lowering.writer import BlockWriter


@dataclass(slots=True)
class Draft:
    """``writes`` in order; ``key`` and ``roles`` as a hook has them, shared by its parts."""

    writes: list[Write] = field(default_factory=list)
    key: list[Hashable] = field(default_factory=list)
    roles: dict[str, Unit | str] = field(default_factory=dict)

    def write(self, w: BlockWriter) -> None:
        """All of it, in order."""
        for write in self.writes:
            write(w)

    def part(self) -> Draft:
        """Code at another point of the same call."""
        return Draft(key=self.key, roles=self.roles)

    def limit(self, event: Freed | None) -> tuple[str, str] | None:
        """The role and name of an event that the host waits for; it joins key and roles."""
        self.key.append(event and event[1])
        if event is None:
            return None
        role = f"limit.{sum(name.startswith('limit.') for name in self.roles)}"
        self.roles[role] = event[0]
        return role, event[1]

    def hook(self) -> Hook:
        """The hook."""
        return Hook(write=self.write, key=tuple(self.key), roles=self.roles)
