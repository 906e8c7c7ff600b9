"""Static rules of a program, checked without a clock (tensors, events, kernels).

Every tensor: one alloc, one free or resident at the end; no double alloc, double free or free of
nothing; a shared slot always holds the same tensor. Every wait has a record before it in host
order. Every block and register number exists.
"""

from __future__ import annotations

from simulator.errors import ProgramError
from simulator.program.instructions import Alloc, Free, HostWait, Record, Tensor, Wait
from simulator.program.program import Call, Program


def verify(program: Program) -> None:
    """Walk the flat listing once.

    Raises:
        ProgramError: naming the call, the block, the instruction and the rule it breaks.
    """
    walk = _Walk(program)
    for index, call in enumerate(program.calls):
        walk.call(index, call)
    walk.end()


class _Walk:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.live: dict[int, Tensor] = {}
        self.recorded: set[int] = set()
        self.freed: dict[tuple[int, int], Tensor] = {}
        self.place = ""

    def call(self, index: int, call: Call) -> None:
        block = self.program.blocks[call.block]
        self.place = f"call {index} ({call.spell(block.name)}, step {call.step})"
        if len(call.registers) != len(block.parameters):
            raise self._error(f"binds {len(call.registers)} of {len(block.parameters)} slots")
        if len(call.events) != len(block.event_parameters):
            raise self._error(f"binds {len(call.events)} of {len(block.event_parameters)} events")
        local_tensors: dict[int, Tensor] = {}
        local_events: set[int] = set()
        for instruction in block.instructions:
            if isinstance(instruction, Alloc):
                self._alloc(call, instruction, local_tensors)
            elif isinstance(instruction, Free):
                self._free(call, instruction, local_tensors)
            elif isinstance(instruction, Record):
                self._record(call, instruction.event, local_events)
            elif isinstance(instruction, Wait | HostWait):
                self._wait(call, instruction.event, local_events)
        if local_tensors:
            names = ", ".join(tensor.name for tensor in local_tensors.values())
            raise self._error(f"leaks local tensors: {names}")

    def end(self) -> None:
        live, resident = set(self.live), set(self.program.resident)
        self.place = "end of program"
        if leaked := live - resident:
            names = ", ".join(self.program.registers[number] for number in sorted(leaked)[:5])
            raise self._error(f"{len(leaked)} tensors are neither freed nor resident: {names}")
        if missing := resident - live:
            names = ", ".join(self.program.registers[number] for number in sorted(missing)[:5])
            raise self._error(f"{len(missing)} resident tensors are gone: {names}")

    def _slot(
        self, call: Call, slot: int, local: dict[int, Tensor]
    ) -> tuple[dict[int, Tensor], int]:
        if slot < len(call.registers):
            return self.live, call.registers[slot]
        return local, slot

    def _alloc(self, call: Call, instruction: Alloc, local: dict[int, Tensor]) -> None:
        held, key = self._slot(call, instruction.slot, local)
        if key in held:
            raise self._error(f"allocates {instruction.tensor.name} over {held[key].name}")
        held[key] = instruction.tensor

    def _free(self, call: Call, instruction: Free, local: dict[int, Tensor]) -> None:
        held, key = self._slot(call, instruction.slot, local)
        tensor = held.pop(key, None)
        if tensor is None:
            name = self.program.registers[key] if held is self.live else f"local slot {key}"
            raise self._error(f"frees {name}, which holds nothing")
        first = self.freed.setdefault((call.block, instruction.slot), tensor)
        if first.bytes != tensor.bytes or first.category is not tensor.category:
            raise self._error(f"frees {tensor.name} where another call frees {first.name}")

    def _record(self, call: Call, event: int, local: set[int]) -> None:
        if event < len(call.events):
            self.recorded.add(call.events[event])
        else:
            local.add(event)

    def _wait(self, call: Call, event: int, local: set[int]) -> None:
        known = call.events[event] in self.recorded if event < len(call.events) else event in local
        if not known:
            name = (
                self.program.events[call.events[event]]
                if event < len(call.events)
                else f"local event {event}"
            )
            raise self._error(f"waits for {name}, which nothing records before")

    def _error(self, what: str) -> ProgramError:
        return ProgramError(f"{self.place} {what}")
