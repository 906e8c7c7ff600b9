"""The ledger against a walk over the flat listing, which is the definition."""

from __future__ import annotations

import pytest
from hypothesis import given

from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.plan.plan import Plan
from simulator.program.instructions import Alloc, Free, Mark, Tensor
from simulator.program.program import Program
from tests.strategies import models, plans


def walk(program: Program) -> tuple[dict[tuple[int, str], int], list[tuple[str, int]]]:
    """Peak of each (step, phase) at an allocation, and live bytes at every mark."""
    live: dict[tuple[bool, int], Tensor] = {}
    total, peaks, marks = 0, {}, []
    for call, instruction in program.instructions():
        if isinstance(instruction, Alloc | Free):
            shared = instruction.slot < len(call.registers)
            key = (shared, call.registers[instruction.slot] if shared else instruction.slot)
        if isinstance(instruction, Alloc):
            live[key] = instruction.tensor
            total += instruction.tensor.bytes
            phase = (call.step, call.phase.value)
            peaks[phase] = max(peaks.get(phase, 0), total)
        elif isinstance(instruction, Free):
            total -= live.pop(key).bytes
        elif isinstance(instruction, Mark):
            marks.append((call.spell(instruction.name), total))
    return peaks, marks


@given(models(), plans())
def test_composed_blocks_are_the_flat_walk(model: ModelConfig, plan: Plan) -> None:
    program = lower(decoder_of(model, plan), plan)
    peaks, marks = walk(program)
    report = replay(program)
    assert {(p.step, p.phase): p.allocated for p in report.phases} == peaks
    assert [(m.mark, m.allocated) for m in report.marks] == marks


@given(models(), plans())
def test_the_parts_add_up(model: ModelConfig, plan: Plan) -> None:
    report = replay(lower(decoder_of(model, plan), plan))
    for peak in report.phases:
        assert sum(peak.breakdown.values()) == peak.allocated
        assert min(peak.breakdown.values()) > 0
    assert report.peak.allocated == max(peak.allocated for peak in report.phases)
    assert sum(t.bytes for t in report.alive_at_peak) == report.peak.allocated
    by_category: dict[str, int] = {}
    for tensor in report.alive_at_peak:
        by_category[tensor.category] = by_category.get(tensor.category, 0) + tensor.bytes
    assert by_category == dict(report.peak.breakdown)
    assert report.curve.bytes.min() >= 0
    assert report.curve.bytes.sum(axis=1).max() == report.peak.allocated
    assert report.curve.bytes[-1].sum() == report.resident[-1]


@given(models(), plans())
def test_durations_only_move_points_in_time(model: ModelConfig, plan: Plan) -> None:
    program = lower(decoder_of(model, plan), plan)
    durations = [range(1, 1 + len(block.instructions)) for block in program.blocks]
    plain, priced = replay(program), replay(program, durations)
    assert plain.peak.allocated == priced.peak.allocated
    assert (plain.curve.bytes == priced.curve.bytes).all()
    for curve in (plain.curve, priced.curve):
        assert curve.fraction.min() >= 0
        assert curve.fraction.max() <= 1 + 1e-12


def test_without_detail_the_peaks_are_the_same() -> None:
    from tests.recorded import program_of, runs

    program = program_of(runs()["debug_ws8"]["config"])
    full, short = replay(program), replay(program, detail=False)
    assert full.phases == short.phases
    assert full.resident == short.resident
    assert short.marks == ()
    assert short.alive_at_peak == ()


def test_a_peak_names_its_module_and_tensor() -> None:
    """Llama-2 7B, micro-batch 1, no checkpointing: the peak is the loss' second fp32 gradient."""
    from tests.recorded import program_of, runs

    peak = replay(program_of(runs()["7b_ws8_mb1_none"]["config"])).peak
    assert (peak.step, peak.phase, peak.at) == (1, "backward", "loss")
    assert peak.tensor == "log_softmax.grad"
    assert peak.allocated == pytest.approx(29.954 * 2**30, rel=1e-4)
