"""The replay of a program's allocations, in host issue order: exact without a clock.

Blocks are summarised once; composing their (net, peak) along the calls gives the exact peak
(design: allocated never needs a clock, because the caching allocator acts at host call time).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.memory.summary import CATEGORIES, BlockMemory, freed_on_entry
from simulator.program.instructions import Alloc, Tensor
from simulator.program.program import Call, Phase, Program
from simulator.trace.memory import (
    CallFacts,
    LiveTensor,
    MarkPoint,
    MemoryCurve,
    MemoryReport,
    PhasePeak,
)


def replay(
    program: Program,
    durations: Sequence[Sequence[int]] | None = None,
    *,
    detail: bool = True,
) -> MemoryReport:
    """Replay ``program`` on the ledger: sums of requests rounded to 512 bytes.

    ``durations[b]`` are block b's launches in ns; they only place points between a call's start
    and end (default: launches count alike). ``detail=False`` leaves out curve, marks and the
    tensors alive at the peak.
    """
    return _Replay(program, durations).report(detail=detail)


class _Replay:
    def __init__(self, program: Program, durations: Sequence[Sequence[int]] | None) -> None:
        self.program, self.durations = program, durations
        self.summaries: dict[int, BlockMemory] = {}
        self.starts: list[int] = []
        self.best: dict[tuple[int, Phase], tuple[int, int]] = {}
        self.resident: dict[int, int] = {}
        self._compose()
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
                if best is None or total + summary.peak > best[0]:
                    self.best[phase] = (total + summary.peak, index)
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
        calls = self.program.calls if detail else ()
        return MemoryReport(
            phases=phases,
            peak=peak,
            alive_at_peak=self._alive(peak.call) if detail else (),
            marks=self._marks() if detail else (),
            curve=self._curve() if detail else _EMPTY_CURVE,
            calls=CallFacts(
                step=tuple(call.step for call in calls),
                phase=tuple(call.phase.value for call in calls),
                name=tuple(call.spell(self.program.blocks[call.block].name) for call in calls),
            ),
            resident=tuple(self.resident[step] for step in sorted(self.resident)),
        )

    def _phase_peaks(self) -> tuple[PhasePeak, ...]:
        """Breakdown of each phase's peak: one walk over the net effects by category."""
        wanted = {index: phase for phase, (_, index) in self.best.items()}
        totals = [0] * len(CATEGORIES)
        peaks = []
        for index, call in enumerate(self.program.calls):
            summary = self.summaries[call.block]
            if index in wanted:
                peaks.append(self._phase_peak(index, call, summary, totals))
            for category, size in summary.by_category:
                totals[category] += size
        return tuple(peaks)

    def _phase_peak(
        self, index: int, call: Call, summary: BlockMemory, totals: list[int]
    ) -> PhasePeak:
        offsets, _ = summary.replay_to(summary.peak_at)
        instruction = summary.block.instructions[summary.peak_at]
        assert isinstance(instruction, Alloc)
        parts = {
            category.value: base + offset
            for category, base, offset in zip(CATEGORIES, totals, offsets, strict=True)
            if base + offset
        }
        return PhasePeak(
            step=call.step,
            phase=call.phase.value,
            allocated=self.starts[index] + summary.peak,
            at=call.spell(instruction.tensor.module),
            tensor=instruction.tensor.name,
            breakdown=parts,
            call=index,
            fraction=self._fraction(call.block, summary.launches_before(summary.peak_at)),
        )

    def _fraction(self, block: int, launches: int) -> float:
        """How far through its compute work a call is after ``launches`` compute launches."""
        work = self._work[block]
        return float(work[launches] / work[-1]) if work[-1] else 0.0

    def _alive(self, peak_call: int) -> tuple[LiveTensor, ...]:
        """Tensors alive at the peak, largest first."""
        live: dict[int, LiveTensor] = {}
        for call in self.program.calls[:peak_call]:
            summary = self.summaries[call.block]
            for slot in summary.entry:
                live.pop(call.registers[slot], None)
            for slot, tensor in summary.held_at_end.items():
                live[call.registers[slot]] = _live(call, tensor)
        call = self.program.calls[peak_call]
        summary = self.summaries[call.block]
        _, held = summary.replay_to(summary.peak_at)
        for slot in summary.entry:
            if slot not in held:
                live.pop(call.registers[slot], None)
        inside = [_live(call, tensor) for slot, tensor in held.items() if slot not in summary.entry]
        return tuple(sorted((*live.values(), *inside), key=lambda tensor: -tensor.bytes))

    def _marks(self) -> tuple[MarkPoint, ...]:
        return tuple(
            MarkPoint(
                step=call.step,
                mark=call.spell(mark.name),
                allocated=start + mark.offset,
                call=index,
                fraction=self._fraction(call.block, mark.launches),
            )
            for index, (call, start) in enumerate(zip(self.program.calls, self.starts, strict=True))
            for mark in self.summaries[call.block].marks
        )

    def _curve(self) -> MemoryCurve:
        base = np.zeros(len(CATEGORIES), dtype=np.int64)
        calls, fractions, rows = [], [], []
        for index, call in enumerate(self.program.calls):
            summary = self.summaries[call.block]
            launches, offsets = summary.curve
            if len(launches):
                work = self._work[call.block]
                calls.append(np.full(len(launches), index, dtype=np.int64))
                fractions.append(work[launches] / (work[-1] or 1.0))
                rows.append(base + offsets)
                base = rows[-1][-1]
        return MemoryCurve(
            categories=tuple(category.value for category in CATEGORIES),
            call=np.concatenate(calls),
            fraction=np.concatenate(fractions),
            bytes=np.concatenate(rows),
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
