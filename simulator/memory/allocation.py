"""How a run's memory is allocated: the settings it has, or may have, and what it can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.memory.caching_allocator import Settings
from simulator.memory.levels import Levels, Peak
from simulator.memory.serve import Refusal, Serving, serve
from simulator.program.instructions import Alloc
from simulator.program.program import Phase, Program
from simulator.trace.memory import AllocatorReport, Shortage


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """``settings`` as ``PYTORCH_CUDA_ALLOC_CONF`` writes them, and others the run may have.

    ``capacity``: bytes of the device that the allocator can have (None: no end); ``workspace``:
    bytes of a cuBLAS workspace, of which the forward and the backward thread have one each.
    """

    settings: str = ""
    others: tuple[str, ...] = ()
    capacity: int | None = None
    workspace: int = 0

    def serving(self, settings: str | None = None) -> Serving:
        """What serves the requests under ``settings`` (default: its own)."""
        return Serving(
            settings=Settings.parse(self.settings if settings is None else settings),
            capacity=self.capacity,
            workspace=self.workspace,
        )


def allocator_report(
    program: Program, levels: Levels, peaks: Mapping[tuple[int, Phase], Peak], of: Allocation
) -> AllocatorReport:
    """What the allocator did, and where its segments were the most; ``peaks`` are of reserved."""
    (step, phase), peak = max(peaks.items(), key=lambda item: item[1].size)
    at, tensor = _place(program, peak.call, peak.instruction)
    refusal = levels.served.refusal
    return AllocatorReport(
        settings=of.settings,
        peak_reserved=peak.size,
        peak_step=step,
        peak_phase=phase.value,
        peak_at=at,
        peak_tensor=tensor,
        retries=levels.served.retries,
        shortage=None if refusal is None else _shortage(program, refusal),
        capacity=of.capacity,
        others={
            settings: int(serve(program, of.serving(settings)).reserved.max())
            for settings in of.others
        },
    )


def _shortage(program: Program, refusal: Refusal) -> Shortage:
    call = program.calls[refusal.call]
    at, tensor = _place(program, refusal.call, refusal.instruction)
    return Shortage(
        step=call.step,
        phase=call.phase.value,
        at=at,
        tensor=tensor,
        requested=refusal.requested,
        free=refusal.free,
        reserved=refusal.reserved,
        allocated=refusal.allocated,
    )


def _place(program: Program, index: int, number: int) -> tuple[str, str]:
    """Module and tensor of an instruction that allocates; cuBLAS' workspace comes before a call."""
    call = program.calls[index]
    instruction = program.blocks[call.block].instructions[number]
    if not isinstance(instruction, Alloc):
        return call.spell(program.blocks[call.block].name), "cuBLAS workspace"
    return call.spell(instruction.tensor.module), instruction.tensor.name
