"""WAIST 1: a program is a short list of calls of blocks.

A block is written once for each distinct (module, phase, role) and called for each layer and
micro-batch. ``Program.instructions()`` spells the flat listing out lazily.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from simulator.program.instructions import Instruction


class Phase(Enum):
    """The part of a step that a call belongs to. Clipping counts to the optimizer."""

    INIT = "init"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Straight-line code over numbered slots and events.

    Slots ``0 .. len(parameters)-1`` and events ``0 .. len(event_parameters)-1`` are bound by each
    call; every other slot and event is local: allocated and freed, recorded and waited for inside.
    """

    name: str
    instructions: tuple[Instruction, ...]
    parameters: tuple[str, ...] = ()
    event_parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One run of ``Program.blocks[block]`` with its parameters bound to registers."""

    block: int
    registers: tuple[int, ...]
    events: tuple[int, ...]
    phase: Phase
    step: int
    micro_batch: int = 0
    layer: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def spell(self, template: str) -> str:
        """Put the layer number where a module name has ``*``, a unit's label where ``{role}`` is.

        ``labels`` says which unit plays each role in this call.
        """
        if "{" in template:
            for role, label in self.labels.items():
                template = template.replace(f"{{{role}}}", label)
        return template if self.layer is None else template.replace("*", str(self.layer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What one kind of rank issues, start to end.

    ``registers[i]`` names register i (a tensor that outlives a call); ``events[i]`` likewise.
    ``resident`` are the registers that are live at the end on purpose.
    """

    blocks: tuple[Block, ...]
    calls: tuple[Call, ...]
    registers: tuple[str, ...]
    events: tuple[str, ...]
    resident: frozenset[int] = field(default_factory=frozenset)

    def instructions(self) -> Iterator[tuple[Call, Instruction]]:
        """The flat listing, lazily: each instruction with the call it is run by."""
        for call in self.calls:
            for instruction in self.blocks[call.block].instructions:
                yield call, instruction
