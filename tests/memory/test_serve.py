"""Programs whose requests the caching allocator serves: books that add up, and what runs out."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given

from simulator.hardware.topologies import build, find_topology
from simulator.lowering.lower import decoder_of, lower
from simulator.memory.allocation import Allocation
from simulator.memory.caching_allocator import CachingAllocator, Device, Settings
from simulator.memory.ledger import SLACK, WORKSPACES, replay
from simulator.memory.outside import outside, workspace_bytes
from simulator.memory.serve import STREAMS, UNBOUNDED, Serving, serve
from simulator.model.config import ModelConfig
from simulator.plan.plan import Plan
from simulator.plan.versions import EXPANDABLE
from simulator.program.instructions import Alloc, Free
from simulator.program.program import Program
from simulator.run import program_of
from simulator.scenario import load
from tests.recorded import DATA, runs
from tests.recorded import program_of as recorded_program
from tests.strategies import models, plans

MIB, GIB = 1 << 20, 1 << 30
WORKSPACE = 32 * MIB


def walk(program: Program, settings: str) -> list[tuple[int, int]]:
    """(allocated, reserved) after each alloc and free of the flat listing: the definition."""
    allocator = CachingAllocator(Settings.parse(settings), Device(total=UNBOUNDED))
    held: dict[tuple[bool, int], Any] = {}
    found = []
    for call, instruction in program.instructions():
        if not isinstance(instruction, Alloc | Free):
            continue
        shared = instruction.slot < len(call.registers)
        key = (shared, call.registers[instruction.slot] if shared else instruction.slot)
        if isinstance(instruction, Free):
            allocator.free(held.pop(key))
        elif instruction.tensor.requested:
            stream = STREAMS[instruction.stream]
            held[key] = allocator.malloc(instruction.tensor.requested, stream)
        found.append((allocator.counters.allocated, allocator.counters.reserved))
    return found


@given(models(), plans())
def test_serving_is_the_flat_walk(model: ModelConfig, plan: Plan) -> None:
    program = lower(decoder_of(model, plan), plan)
    for settings in ("", EXPANDABLE):
        served = serve(program, Serving(settings=Settings.parse(settings)))
        rows = zip(served.allocated.tolist(), served.reserved.tolist(), strict=True)
        assert list(rows) == walk(program, settings)


@given(models(), plans())
def test_the_parts_add_up_to_the_allocators_counter(model: ModelConfig, plan: Plan) -> None:
    program = lower(decoder_of(model, plan), plan)
    ledger = {(p.step, p.phase): p.allocated for p in replay(program, detail=False).phases}
    report = replay(program, allocation=Allocation(workspace=WORKSPACE))
    assert report.allocator is not None
    for peak in report.phases:
        assert sum(peak.breakdown.values()) == peak.allocated <= (peak.reserved or 0)
        assert min(peak.breakdown.values()) > 0
        beside = peak.breakdown.get(WORKSPACES, 0) + peak.breakdown.get(SLACK, 0)
        assert peak.allocated - beside <= ledger[peak.step, peak.phase] <= peak.allocated
    assert max(p.reserved or 0 for p in report.phases) <= report.allocator.peak_reserved
    curve = report.curve
    assert curve.reserved is not None
    assert curve.bytes.min() >= 0
    assert curve.bytes.sum(axis=1).max() == report.peak.allocated
    assert (curve.bytes.sum(axis=1) <= curve.reserved).all()
    assert curve.reserved[-1] == report.allocator.peak_reserved  # nothing is given back
    assert curve.bytes[-1].sum() == report.resident[-1]


@given(models(), plans())
def test_expandable_segments_hand_out_what_is_asked_for(model: ModelConfig, plan: Plan) -> None:
    """Every block is split to 512 bytes, so allocated is the ledger's, to the byte."""
    program = lower(decoder_of(model, plan), plan)
    plain, served = replay(program), replay(program, allocation=Allocation(settings=EXPANDABLE))
    assert [p.breakdown for p in served.phases] == [p.breakdown for p in plain.phases]
    assert [m.allocated for m in served.marks] == [m.allocated for m in plain.marks]
    assert served.alive_at_peak == plain.alive_at_peak


@cache
def demo() -> Program:
    return program_of(load("llama2-7b-fsdp2-8xa100"))


def test_two_workspaces_from_the_first_products_on() -> None:
    """One in the forward thread, one in the backward thread; then no more."""
    served = serve(demo(), Serving(settings=Settings(), workspace=WORKSPACE))
    calls = [demo().calls[first] for first, _ in served.workspaces]
    assert [(call.step, call.phase.value) for call in calls] == [(0, "forward"), (0, "backward")]
    assert [size for _, size in served.workspaces] == [WORKSPACE] * 2


def test_running_out_is_a_finding_and_the_run_goes_on() -> None:
    free = replay(demo(), allocation=Allocation(settings=EXPANDABLE))
    short = replay(demo(), allocation=Allocation(settings=EXPANDABLE, capacity=20 * GIB))
    assert free.allocator is not None
    assert short.allocator is not None
    assert free.allocator.shortage is None
    shortage = short.allocator.shortage
    assert shortage is not None
    assert (shortage.step, shortage.phase) == (0, "forward")
    assert shortage.allocated + shortage.requested > 20 * GIB - 20 * MIB
    assert shortage.allocated <= shortage.reserved <= 20 * GIB
    assert shortage.free == 20 * GIB - shortage.reserved
    assert sum(short.allocator.retries) >= 1
    assert short.peak == free.peak or short.peak.allocated == free.peak.allocated


def test_less_room_means_more_retries_until_it_does_not_fit() -> None:
    program = demo()
    reserved = int(serve(program, Serving(settings=Settings())).reserved.max())
    allocated = int(serve(program, Serving(settings=Settings())).allocated.max())
    rooms = [reserved, (reserved + allocated) // 2, allocated, allocated - MIB]
    found = [serve(program, Serving(settings=Settings(), capacity=room)) for room in rooms]
    retries = [sum(served.retries) for served in found]
    assert retries[0] == 0
    assert retries[1] > 0
    assert all(
        served.reserved.max() <= room for served, room in zip(found[:2], rooms, strict=False)
    )
    assert [served.refusal is None for served in found[:2]] == [True, True]
    assert found[3].refusal is not None


@pytest.mark.parametrize(
    ("trace", "name", "bound"),
    [
        ("7b8L_hsdp_reducebf16", "7b_hsdp8x8_full_noclear_trace", 0.0),
        ("7b_ws8_mb1_full", "7b_ws8_mb1_full_steptrace", 0.006),
        ("8b_ws8_mb1_none", "8b_ws8_mb1_none_trace", 0.001),
    ],
)
def test_reserved_is_that_of_the_recorded_requests(trace: str, name: str, bound: float) -> None:
    """Our program's requests against the recorded ones, both served; their order is the same.

    But for rope: the recorded model casts q back before it turns k, torchtitan's turns both first.
    That shifts where a 20 MiB granule is mapped.
    """
    recorded = json.loads(gzip.decompress((DATA / "allocator_traces.json.gz").read_bytes()))
    stated = recorded["runs"][trace]["results"]["expandable"]["phases"]
    report = replay(
        recorded_program(runs()[name]["config"]),
        allocation=Allocation(settings=EXPANDABLE),
        detail=False,
    )
    found = {(p.step, p.phase): p.reserved for p in report.phases}
    for step in (0, 1):
        for phase in ("forward", "backward"):
            _, reserved, *_ = stated[f"{ {'forward': 'fwd', 'backward': 'bwd'}[phase] }:{step}"]
            assert found[step, phase] == pytest.approx(reserved, rel=bound, abs=0)


def test_what_lies_outside_grows_with_groups_and_distance() -> None:
    dgx = build(find_topology("dgx-h100", None), 2, None, None)
    alone = outside(dgx, [])
    near, far = outside(dgx, [tuple(range(8))]), outside(dgx, [tuple(range(16))])
    both = outside(dgx, [tuple(range(8)), (0, 8)])
    sizes = [found.usual for found in (alone, near, far, both)]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4
    assert outside(dgx, [(0,)]) == alone
    for spread in (near.context, near.nccl):
        assert spread.low < spread.usual < spread.high


def test_a_workspace_is_what_pytorch_chooses() -> None:
    """``:4096:2:16:8`` in KiB, on Hopper 4096 times 8 KiB (CublasHandlePool.cpp)."""
    assert workspace_bytes("A100") == (4096 * 2 + 16 * 8) * 1024
    assert workspace_bytes("H100") == 4096 * 8 * 1024
