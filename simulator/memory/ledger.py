"""The replay of a program's allocations, in host issue order: exact without a clock.

Blocks are summarised once; composing their (net, peak) along the calls gives the exact peak
(design: allocated never needs a clock, because the caching allocator acts at host call time).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.memory.allocation import Allocation, allocator_report
from simulator.memory.levels import Levels, Peak
from simulator.memory.serve import serve
from simulator.memory.summary import CATEGORIES, BlockMark, BlockMemory, freed_on_entry
from simulator.program.instructions import Alloc, Tensor
from simulator.program.program import Call, Phase, Program
from simulator.trace.memory import (
    AllocatorReport,
    CallFacts,
    LiveTensor,
    MarkPoint,
    MemoryCurve,
    MemoryReport,
    PhasePeak,
)

WORKSPACES, SLACK = "workspaces", "slack"
"""Parts of allocated that no request of the program makes: cuBLAS' and what blocks have over."""


def replay(
    program: Program,
    durations: Sequence[Sequence[int]] | None = None,
    *,
    detail: bool = True,
    allocation: Allocation | None = None,
) -> MemoryReport:
    """Replay ``program`` on the ledger: sums of requests rounded to 512 bytes.

    With an ``allocation`` the requests are served by the caching allocator too, and allocated is
    its counter: what it hands out beyond the requests is ``slack``, what cuBLAS holds
    ``workspaces``.

    ``durations[b]`` are block b's launches in ns; they only place points between a call's start
    and end (default: launches count alike). ``detail=False`` leaves out curve, marks and the
    tensors alive at the peak.
    """
    return _Replay(program, durations, allocation).report(detail=detail)


class _Replay:
    def __init__(
        self,
        program: Program,
        durations: Sequence[Sequence[int]] | None,
        allocation: Allocation | None,
    ) -> None:
        self.program, self.durations, self.allocation = program, durations, allocation
        self.summaries: dict[int, BlockMemory] = {}
        self.starts: list[int] = []
        self.best: dict[tuple[int, Phase], Peak] = {}
        self.resident: dict[int, int] = {}
        self.reserved: dict[tuple[int, Phase], Peak] = {}
        self.levels: Levels | None = None
        self._compose()
        if allocation is not None:
            self.levels = Levels(program, serve(program, allocation.serving()))
            self.best = self.levels.allocated_peaks()
            self.reserved = self.levels.reserved_peaks()
        self._work = {
            number: summary.compute_launches(None if durations is None else durations[number])
            for number, summary in self.summaries.items()
        }

    def _compose(self) -> None:
        """Live bytes at each call's start, and the call that holds each phase's peak."""
        tensors: dict[int, Tensor] = {}
        total, unseen = 0, {call.block for call in self.program.calls}
        for index, call in enumerate(self.program.calls):
            summary = self.summaries.get(call.block)
            if summary is None:
                summary = self._summarise(call, tensors)
                unseen.remove(call.block)
            if unseen:  # blocks to come must be told what lies in their slots
                for slot, tensor in summary.held_at_end.items():
                    tensors[call.registers[slot]] = tensor
            self.starts.append(total)
            phase = (call.step, call.phase)
            if summary.peak >= 0:
                best = self.best.get(phase)
                if best is None or total + summary.peak > best.size:
                    self.best[phase] = Peak(
                        size=total + summary.peak, call=index, instruction=summary.peak_at
                    )
            total += summary.net
            self.resident[call.step] = total

    def _summarise(self, call: Call, tensors: dict[int, Tensor]) -> BlockMemory:
        block = self.program.blocks[call.block]
        entry = {slot: tensors[call.registers[slot]] for slot in freed_on_entry(block)}
        summary = self.summaries[call.block] = BlockMemory(block, entry)
        return summary

    def report(self, *, detail: bool) -> MemoryReport:
        phases = self._phase_peaks()
        peak = max(phases, key=lambda found: found.allocated)
        highest = self.best[peak.step, Phase(peak.phase)]
        calls = self.program.calls if detail else ()
        return MemoryReport(
            phases=phases,
            peak=peak,
            alive_at_peak=self._alive(highest) if detail else (),
            marks=self._marks() if detail else (),
            curve=self._curve() if detail else _EMPTY_CURVE,
            calls=CallFacts(
                step=tuple(call.step for call in calls),
                phase=tuple(call.phase.value for call in calls),
                name=tuple(call.spell(self.program.blocks[call.block].name) for call in calls),
            ),
            resident=self._resident(),
            allocator=self._allocator(),
        )

    def _allocator(self) -> AllocatorReport | None:
        if self.levels is None or self.allocation is None:
            return None
        return allocator_report(self.program, self.levels, self.reserved, self.allocation)

    def _resident(self) -> tuple[int, ...]:
        """Live bytes after each step."""
        if self.levels is None:
            return tuple(self.resident[step] for step in sorted(self.resident))
        last = {call.step: index + 1 for index, call in enumerate(self.program.calls)}
        return tuple(self.levels.before(last[step]) for step in sorted(last))

    def _phase_peaks(self) -> tuple[PhasePeak, ...]:
        """Breakdown of each phase's peak: one walk over the net effects by category."""
        wanted = {peak.call: peak for peak in self.best.values()}
        totals = [0] * len(CATEGORIES)
        peaks = []
        for index, call in enumerate(self.program.calls):
            summary = self.summaries[call.block]
            if index in wanted:
                segments = self.reserved.get((call.step, call.phase))
                peaks.append(self._phase_peak(wanted[index], summary, totals, segments))
            for category, size in summary.by_category:
                totals[category] += size
        return tuple(peaks)

    def _phase_peak(
        self, peak: Peak, summary: BlockMemory, totals: list[int], segments: Peak | None
    ) -> PhasePeak:
        call = self.program.calls[peak.call]
        offsets, _ = summary.replay_to(peak.instruction)
        instruction = summary.block.instructions[peak.instruction]
        assert isinstance(instruction, Alloc)
        parts = {
            category.value: base + offset
            for category, base, offset in zip(CATEGORIES, totals, offsets, strict=True)
            if base + offset
        }
        return PhasePeak(
            step=call.step,
            phase=call.phase.value,
            allocated=peak.size,
            at=call.spell(instruction.tensor.module),
            tensor=instruction.tensor.name,
            breakdown=parts | self._beside(peak, sum(parts.values())),
            call=peak.call,
            fraction=self._fraction(call.block, summary.launches_before(peak.instruction)),
            reserved=segments.size if segments else None,
        )

    def _beside(self, peak: Peak, requests: int) -> dict[str, int]:
        """What is allocated beyond the program's own requests: cuBLAS' and the allocator's."""
        if self.levels is None:
            return {}
        workspaces = self.levels.workspaces(peak.call)
        parts = {WORKSPACES: workspaces, SLACK: peak.size - requests - workspaces}
        return {name: size for name, size in parts.items() if size}

    def _fraction(self, block: int, launches: int) -> float:
        """How far through its compute work a call is after ``launches`` compute launches."""
        work = self._work[block]
        return float(work[launches] / work[-1]) if work[-1] else 0.0

    def _alive(self, peak: Peak) -> tuple[LiveTensor, ...]:
        """Tensors alive at the peak, largest first."""
        live: dict[int, LiveTensor] = {}
        for call in self.program.calls[: peak.call]:
            summary = self.summaries[call.block]
            for slot in summary.entry:
                live.pop(call.registers[slot], None)
            for slot, tensor in summary.held_at_end.items():
                live[call.registers[slot]] = _live(call, tensor)
        call = self.program.calls[peak.call]
        summary = self.summaries[call.block]
        _, held = summary.replay_to(peak.instruction)
        for slot in summary.entry:
            if slot not in held:
                live.pop(call.registers[slot], None)
        inside = [_live(call, tensor) for slot, tensor in held.items() if slot not in summary.entry]
        return tuple(sorted((*live.values(), *inside), key=lambda tensor: -tensor.bytes))

    def _marks(self) -> tuple[MarkPoint, ...]:
        return tuple(
            self._mark(index, call, start, mark)
            for index, (call, start) in enumerate(zip(self.program.calls, self.starts, strict=True))
            for mark in self.summaries[call.block].marks
        )

    def _mark(self, index: int, call: Call, start: int, mark: BlockMark) -> MarkPoint:
        allocated, reserved = start + mark.offset, None
        if self.levels is not None:
            row = self.levels.row(index, mark.operations)
            allocated = int(self.levels.allocated(row))
            reserved = int(self.levels.reserved(row))
        return MarkPoint(
            step=call.step,
            mark=call.spell(mark.name),
            allocated=allocated,
            reserved=reserved,
            call=index,
            fraction=self._fraction(call.block, mark.launches),
        )

    def _curve(self) -> MemoryCurve:
        base = np.zeros(len(CATEGORIES), dtype=np.int64)
        calls, fractions, rows, places = [], [], [], []
        for index, call in enumerate(self.program.calls):
            curve = self.summaries[call.block].curve
            if len(curve.launches):
                work = self._work[call.block]
                calls.append(np.full(len(curve.launches), index, dtype=np.int64))
                fractions.append(work[curve.launches] / (work[-1] or 1.0))
                rows.append(base + curve.offsets)
                base = rows[-1][-1]
                if self.levels is not None:
                    places.append(self.levels.row(index, curve.operations))
        found = MemoryCurve(
            categories=tuple(category.value for category in CATEGORIES),
            call=np.concatenate(calls),
            fraction=np.concatenate(fractions),
            bytes=np.concatenate(rows),
        )
        return found if self.levels is None else self._served_curve(found, np.concatenate(places))

    def _served_curve(self, curve: MemoryCurve, places: NDArray[np.int64]) -> MemoryCurve:
        """The curve with what is allocated beside the requests, and with reserved."""
        assert self.levels is not None
        workspaces = np.zeros(len(curve.call), dtype=np.int64)
        for first, size in self.levels.served.workspaces:
            workspaces[curve.call >= first] += size
        slack = self.levels.allocated(places) - curve.bytes.sum(axis=1) - workspaces
        return MemoryCurve(
            categories=(*curve.categories, WORKSPACES, SLACK),
            call=curve.call,
            fraction=curve.fraction,
            bytes=np.column_stack([curve.bytes, workspaces, slack]),
            reserved=self.levels.reserved(places),
        )


def _live(call: Call, tensor: Tensor) -> LiveTensor:
    return LiveTensor(
        name=tensor.name,
        module=call.spell(tensor.module),
        category=tensor.category.value,
        bytes=tensor.bytes,
    )


_EMPTY_CURVE = MemoryCurve(
    categories=tuple(category.value for category in CATEGORIES),
    call=np.zeros(0, dtype=np.int64),
    fraction=np.zeros(0),
    bytes=np.zeros((0, len(CATEGORIES)), dtype=np.int64),
)
