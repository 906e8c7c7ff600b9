"""Writes one block: allocations, launches and events over slots.

A slot or event that outlives the call is *shared*: it is named by a role and a name, such as
``own/out`` or ``pending/reduce_scatter_input``, and each call binds the role to a unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from simulator.kernels import Kernel
from simulator.program.instructions import (
    Alloc,
    Category,
    Collective,
    Free,
    HostWait,
    Instruction,
    Launch,
    Mark,
    Record,
    Stream,
    Tensor,
    Wait,
)
from simulator.program.program import Block

FIRST_LOCAL = 1 << 16
"""Local slots and events are numbered from here, shared ones from zero."""

Key = tuple[str, str]
"""(role, name) of something shared."""


class BlockWriter:
    """Appends instructions; ``finish`` freezes them into a block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._instructions: list[Instruction] = []
        self._slots: dict[Key, int] = {}
        self._events: dict[Key, int] = {}
        self._allocated_at: dict[int, int] = {}
        self._locals = FIRST_LOCAL

    def shared(self, role: str, name: str) -> int:
        """The slot of a tensor that outlives this call."""
        return self._slots.setdefault((role, name), len(self._slots))

    def event(self, role: str, name: str) -> int:
        """The number of an event that outlives this call."""
        return self._events.setdefault((role, name), len(self._events))

    def local(self) -> int:
        """A fresh slot or event number of this call alone."""
        self._locals += 1
        return self._locals

    def alloc(
        self, tensor: Tensor, stream: Stream = Stream.COMPUTE, slot: int | None = None
    ) -> int:
        """Allocate ``tensor`` into ``slot`` (default: a fresh local one); returns the slot."""
        if slot is None:
            self._locals = slot = self._locals + 1
        self._allocated_at[slot] = len(self._instructions)
        self._instructions.append(Alloc(slot, tensor, stream))
        return slot

    @staticmethod
    def is_local(slot: int) -> bool:
        """Whether a slot is of this call alone."""
        return slot > FIRST_LOCAL

    def promote(self, slot: int, role: str, name: str, category: Category | None = None) -> None:
        """Let what was allocated into local ``slot`` outlive this call under a shared name.

        What is there already stays as it is.

        ``category``: what it turns out to be for, where that is not what it was allocated as.
        """
        if slot == self.shared(role, name):
            return
        where = self._allocated_at.pop(slot)
        old = self._instructions[where]
        assert isinstance(old, Alloc)
        tensor = old.tensor if category is None else replace(old.tensor, category=category)
        self._instructions[where] = Alloc(self.shared(role, name), tensor, old.stream)

    def recategorise(self, slot: int, category: Category) -> None:
        """What was allocated into local ``slot`` turns out to be something else."""
        where = self._allocated_at[slot]
        old = self._instructions[where]
        assert isinstance(old, Alloc)
        tensor = replace(old.tensor, category=category)
        self._instructions[where] = Alloc(slot, tensor, old.stream)

    def free(self, slot: int) -> None:
        """Drop the last reference to a slot."""
        self._instructions.append(Free(slot))

    def free_all(self, slots: Iterable[int]) -> None:
        """Drop several slots in order."""
        self._instructions.extend(map(Free, slots))

    def launch(self, kernel: Kernel, module: str, stream: Stream = Stream.COMPUTE) -> None:
        """Enqueue a kernel."""
        self._instructions.append(Launch(kernel, stream, module))

    def collective(self, collective: Collective) -> None:
        """Enqueue a collective."""
        self._instructions.append(collective)

    def record(self, event: int, stream: Stream) -> None:
        """cudaEventRecord."""
        self._instructions.append(Record(event, stream))

    def wait(self, event: int, *streams: Stream) -> None:
        """cudaStreamWaitEvent on each of ``streams``."""
        self._instructions.extend(Wait(event, stream) for stream in streams)

    def host_wait(self, event: int) -> None:
        """cudaEventSynchronize."""
        self._instructions.append(HostWait(event))

    def wait_stream(self, waiting: Iterable[Stream], awaited: Stream) -> None:
        """``waiting.wait_stream(awaited)``: an event recorded and waited for."""
        event = self.local()
        self.record(event, awaited)
        self.wait(event, *waiting)

    def mark(self, name: str) -> None:
        """A framework hook boundary."""
        self._instructions.append(Mark(name))

    def finish(self) -> Block:
        """The block, with its parameters named ``role/name``."""
        return Block(
            name=self.name,
            instructions=tuple(self._instructions),
            parameters=tuple("/".join(key) for key in self._slots),
            event_parameters=tuple("/".join(key) for key in self._events),
        )
