"""The answer is sums, maxima and quotients of the trace, in the shape of the contract."""

import json
import sys
from dataclasses import replace

import pytest
from synthetic import Shape, synthetic_trace, two_classes

from simulator.errors import UnknownNameError, UserError
from simulator.program.instructions import Category
from simulator.report import memory_plot
from simulator.trace.result import curve_json, summarise

TOP = [
    "schema", "scenario", "seed", "world_size",
    "step_time_s", "step_time_is_lower_bound", "first_step_time_s",
    "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "memory", "time",
    "ranks", "engine", "warnings",
]  # fmt: skip
MEMORY = [
    "device_bytes", "fits", "headroom_bytes", "counter", "peak_allocated_bytes",
    "peak_active_bytes", "peak_reserved_bytes", "peak_device_bytes", "host_peak_bytes",
    "peak_rank", "peak_step", "peak_phase", "peak_at", "breakdown_at_peak", "phases",
    "allocator", "outside",
]  # fmt: skip
PHASE = ["step", "phase", "peak_allocated_bytes", "peak_reserved_bytes", "at", "breakdown"]
TIME = [
    "compute_s", "exposed_communication_s", "bubble_s", "host_s", "optimizer_s", "offload_s",
    "idle_s",
]  # fmt: skip
RANK = [
    "rank", "class", "device", "peak_allocated_bytes", "peak_reserved_bytes", "step_time_s"
]  # fmt: skip
SIX = [(s, p) for s in (0, 1) for p in ("forward", "backward", "optimizer")]


@pytest.fixture(scope="module")
def trace():
    return synthetic_trace()


@pytest.fixture(scope="module")
def answer(trace):
    return summarise(trace).to_json()


def test_the_keys_are_the_contract(answer):
    assert list(answer) == TOP
    assert answer["schema"] == "dryfit.result/1"
    assert list(answer["memory"]) == MEMORY
    assert all(list(phase) == PHASE for phase in answer["memory"]["phases"])
    assert list(answer["time"]) == TIME
    assert all(list(rank) == RANK for rank in answer["ranks"])
    assert list(answer["engine"]) == ["classes", "events", "launches", "collectives"]


def test_the_warnings_of_the_run_are_in_the_answer(trace, answer):
    assert answer["warnings"] == list(trace.header.warnings)
    warned = replace(trace, header=replace(trace.header, warnings=("slow", "old")))
    assert summarise(warned).to_json()["warnings"] == ["slow", "old"]


def test_json_is_plain_and_the_same_every_time(trace, answer):
    once = json.dumps(answer, allow_nan=False)
    assert json.dumps(summarise(trace).to_json(), allow_nan=False) == once
    assert json.loads(once) == answer


def test_every_breakdown_adds_up_and_is_of_the_closed_list(answer):
    memory, known = answer["memory"], {category.value for category in Category}
    peaks = [*memory["phases"], {"breakdown": memory["breakdown_at_peak"]} | {
        "peak_allocated_bytes": memory["peak_allocated_bytes"]}]  # fmt: skip
    for peak in peaks:
        assert sum(peak["breakdown"].values()) == peak["peak_allocated_bytes"]
        assert set(peak["breakdown"]) <= known


def test_phases_are_init_then_two_steps(answer):
    phases = [(p["step"], p["phase"]) for p in answer["memory"]["phases"]]
    assert phases == [(0, "init"), *SIX]
    highest = max(p["peak_allocated_bytes"] for p in answer["memory"]["phases"])
    assert highest == answer["memory"]["peak_allocated_bytes"]


def test_a_phase_that_allocates_nothing_holds_what_it_enters_with(trace):
    report = trace.memory[0]
    quiet = tuple(p for p in report.phases if (p.step, p.phase) != (1, "optimizer"))
    result = summarise(replace(trace, memory=(replace(report, phases=quiet),)))
    phases = [(p.step, p.phase) for p in result.memory.phases]
    assert phases == [(0, "init"), *SIX]
    last, call = result.memory.phases[-1], len(report.calls.name) - 1
    entered = report.curve.bytes[report.curve.call < call][-1]
    assert last.peak_allocated_bytes == entered.sum() == sum(last.breakdown.values())
    assert (last.at, last.tensor) == ("optimizer", "")


@pytest.mark.parametrize("others", [0, 3 * 2**30, 70 * 2**30])
def test_headroom_is_what_is_left_of_the_usable_bytes(others):
    trace = synthetic_trace(Shape(others=others))
    memory = summarise(trace).to_json()["memory"]
    left = memory["device_bytes"] - others - memory["peak_allocated_bytes"]
    assert memory["headroom_bytes"] == left
    assert memory["fits"] is (left >= 0)
    assert memory["counter"] == "allocated"


def test_exactly_full_fits_and_one_byte_more_does_not(trace):
    peak = trace.memory[0].peak.allocated
    for size, fits in ((peak, True), (peak - 1, False)):
        tight = replace(trace, header=replace(trace.header, device_bytes=size))
        assert summarise(tight).memory.fits is fits


def test_the_parts_of_time_add_up(answer):
    assert sum(answer["time"].values()) == pytest.approx(answer["step_time_s"], abs=1e-9)
    assert all(part >= 0 for part in answer["time"].values())
    assert answer["time"]["optimizer_s"] == pytest.approx(0.017)


def test_rates_follow_from_the_step(trace, answer):
    header, step = trace.header, answer["step_time_s"]
    assert answer["tokens_per_s_per_gpu"] == pytest.approx(header.tokens / step)
    assert answer["tokens_per_s"] == pytest.approx(8 * header.tokens / step)
    assert answer["mfu"] == pytest.approx(header.model_flops / step / header.peak_flops)
    assert answer["hfu"] / answer["mfu"] == pytest.approx(
        header.hardware_flops / header.model_flops
    )
    assert answer["tflops_per_gpu"] == pytest.approx(answer["mfu"] * header.peak_flops / 1e12)


def test_without_a_timeline_times_are_null_and_memory_is_the_same(answer):
    blind = summarise(synthetic_trace(timed=False)).to_json()
    assert blind["memory"] == answer["memory"]
    assert set(blind["time"].values()) == {None}
    timed = ["step_time_s", "first_step_time_s", "tokens_per_s", "tokens_per_s_per_gpu"]
    assert {blind[key] for key in [*timed, "tflops_per_gpu", "mfu", "hfu"]} == {None}
    assert {rank["step_time_s"] for rank in blind["ranks"]} == {None}


def test_what_no_model_has_said_is_null(trace, answer):
    unknown = ("peak_reserved_bytes", "peak_device_bytes", "host_peak_bytes")
    assert {answer["memory"][key] for key in unknown} == {None}
    assert answer["memory"]["peak_active_bytes"] == answer["memory"]["peak_allocated_bytes"]
    inexact = replace(trace, memory=(replace(trace.memory[0], exact=False),))
    assert summarise(inexact).memory.peak_active_bytes is None


def test_the_slowest_class_makes_the_step_and_the_fullest_the_peak():
    trace = two_classes(slow_ns=30_000_000)
    result = summarise(trace)
    assert result.memory.peak_rank == 1
    assert result.memory.peak_allocated_bytes == trace.memory[1].peak.allocated
    assert result.step_time_s == result.ranks[0].step_time_s
    assert result.step_time_s == pytest.approx(result.ranks[1].step_time_s + 0.030)
    parts = result.time.to_json()
    assert sum(parts.values()) == pytest.approx(result.step_time_s, abs=1e-9)
    assert parts["optimizer_s"] == pytest.approx(0.047)


def test_one_row_a_rank(answer):
    ranks = answer["ranks"]
    assert [rank["rank"] for rank in ranks] == list(range(8))
    assert ranks[3]["device"] == "node0/gpu3"


def test_the_curve_has_a_point_a_mark_and_its_clock_never_goes_back(trace):
    curve = curve_json(trace)
    assert curve["schema"] == "dryfit.curve/1"
    assert len(curve["points"]) == len(trace.memory[0].marks) == 2 * 2 * 32
    assert curve["points"][0][:2] == [0, "pre_fwd.begin:layers.0"]
    seconds = [point[4] for point in curve["points"]]
    assert seconds == sorted(seconds)
    assert all(point[3] is None for point in curve["points"])
    blind = curve_json(synthetic_trace(timed=False))["points"]
    assert [point[:3] for point in blind] == [point[:3] for point in curve["points"]]
    assert {point[4] for point in blind} == {None}


def test_a_frame_without_pandas_says_how_to_get_it(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install 'dryfit\[data\]'"):
        summarise(trace).frame("ranks")


def test_an_unknown_frame_names_the_nearest(trace):
    with pytest.raises(UnknownNameError, match="did you mean 'ranks'"):
        summarise(trace).frame("rank")


@pytest.mark.parametrize(("kind", "rows"), [("ranks", 8), ("phases", 7), ("curve", 128)])
def test_frames_have_a_row_a_thing(trace, monkeypatch, kind, rows):
    result = _framed(trace, monkeypatch, kind)
    assert {len(column) for column in result.values()} == {rows}


def test_the_frame_of_spans_spells_kinds_out(trace, monkeypatch):
    spans = _framed(trace, monkeypatch, "spans")
    assert {"compute", "communication", "optimizer"} <= set(spans["kind"])
    assert all(spans["end_ns"] >= spans["start_ns"])


def _framed(trace, monkeypatch, kind):
    """The columns that pandas would get, so that the tests don't need it."""

    class Pandas:
        DataFrame = dict

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    return summarise(trace).frame(kind)


def test_a_result_draws_itself_once_it_has_views(trace):
    result = summarise(trace)
    with pytest.raises(UserError, match=r"simulator\.report"):
        result.plot_memory()
    figure = replace(result, views=memory_plot).plot_memory(rank=3)
    assert figure.axes
