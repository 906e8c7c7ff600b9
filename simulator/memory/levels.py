"""The allocator's counters at any place of a program: after so many operations of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.memory.serve import Served
from simulator.program.instructions import Alloc, Free
from simulator.program.program import Block, Phase, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest of a counter in a phase, bytes, and the instruction that first reached it."""

    size: int
    call: int
    instruction: int


class Levels:
    """What was served, looked up by call and operation."""

    def __init__(self, program: Program, served: Served) -> None:
        self.program, self.served = program, served
        self._operations = {
            number: _operations(program.blocks[number])
            for number in sorted({call.block for call in program.calls})
        }

    def row(self, call: int, operations: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows after ``operations`` of a call's operations; -1 before everything."""
        return np.asarray(self.served.begins[call] + operations - 1)

    def allocated(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes in use after these rows."""
        return np.where(rows < 0, 0, self.served.allocated[rows])

    def reserved(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes mapped after these rows."""
        return np.where(rows < 0, 0, self.served.reserved[rows])

    def before(self, call: int) -> int:
        """Bytes in use before a call, or after the last."""
        begins = self.served.begins
        row = (int(begins[call]) if call < len(begins) else len(self.served.allocated)) - 1
        return int(self.served.allocated[row]) if row >= 0 else 0

    def workspaces(self, call: int) -> int:
        """Bytes of the workspaces that there are in a call."""
        return sum(size for first, size in self.served.workspaces if first <= call)

    def allocated_peaks(self) -> dict[tuple[int, Phase], Peak]:
        """By step and phase, in order: the highest allocated at an allocation."""
        at_allocations = np.where(self._is_alloc, self.served.allocated, -1)
        return self._peaks(at_allocations)

    def reserved_peaks(self) -> dict[tuple[int, Phase], Peak]:
        """By step and phase, in order: the highest reserved after an operation."""
        return self._peaks(self.served.reserved)

    @cached_property
    def _is_alloc(self) -> NDArray[np.bool_]:
        found = np.zeros(len(self.served.allocated), dtype=bool)
        for begin, call in zip(self.served.begins.tolist(), self.program.calls, strict=True):
            kinds, _ = self._operations[call.block]
            found[begin : begin + len(kinds)] = kinds
        return found

    def _peaks(self, values: NDArray[np.int64]) -> dict[tuple[int, Phase], Peak]:
        found: dict[tuple[int, Phase], Peak] = {}
        for index, (begin, call) in enumerate(
            zip(self.served.begins.tolist(), self.program.calls, strict=True)
        ):
            _, instructions = self._operations[call.block]
            if not len(instructions):
                continue
            row = int(values[begin : begin + len(instructions)].argmax())
            size, phase = int(values[begin + row]), (call.step, call.phase)
            if size >= 0 and (phase not in found or size > found[phase].size):
                found[phase] = Peak(size=size, call=index, instruction=int(instructions[row]))
        return found


def _operations(block: Block) -> tuple[NDArray[np.bool_], Sequence[int]]:
    """Of each alloc and free: whether it is an alloc, and its instruction."""
    kinds, places = [], []
    for index, instruction in enumerate(block.instructions):
        if isinstance(instruction, Alloc | Free):
            kinds.append(isinstance(instruction, Alloc))
            places.append(index)
    return np.array(kinds, dtype=bool), places
