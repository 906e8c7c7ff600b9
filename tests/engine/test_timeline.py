"""What every timeline must be, whatever was played."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import Prices, play
from simulator.program.instructions import HostWait, Record, Stream, Wait
from simulator.program.program import Phase
from tests.engine.strategies import programs
from tests.engine.worlds import (
    AG,
    C,
    collective,
    fsdp,
    gpu,
    launch,
    prices,
    program,
    rows,
    together,
)

COSTLY = {
    "host_launch_ns": 15,
    "host_collective_ns": 20,
    "host_event_ns": 1,
    "overlap": Prices().overlap,
}
PROGRAMS = programs(axes=("dp_shard", "dp_replicate"))


def played(a, speed):
    """Two classes of one program; the second is slower or faster."""
    deployment = together(a, a, gpus=(gpu(), gpu("other", speed)))
    return play(deployment, prices(**COSTLY))


@given(PROGRAMS, st.sampled_from([0.5, 1.0, 2.0]))
def test_the_compute_stream_is_accounted_for_without_gap_or_overlap(what, speed):
    timeline = played(what, speed)
    for rank in (0, 1):
        spans = rows(timeline, rank)
        compute = [(start, end) for stream, *_, start, end in spans if stream == "default"]
        end = max([*(row[4] for row in spans), int(timeline.calls[rank].host_end[-1])])
        assert [0, *(e for _, e in compute)] == [*(s for s, _ in compute), end]


@given(PROGRAMS, st.sampled_from([0.5, 1.0, 2.0]))
def test_spans_of_a_stream_never_overlap(what, speed):
    timeline = played(what, speed)
    for rank in (0, 1):
        for stream in Stream:
            spans = [row for row in rows(timeline, rank) if row[0] == stream.value]
            assert all(a[4] <= b[3] for a, b in pairwise(spans))


@given(PROGRAMS, st.sampled_from([0.5, 1.0, 2.0]))
def test_calls_follow_each_other(what, speed):
    for times in played(what, speed).calls:
        for first, last in (
            (times.host_start, times.host_end),
            (times.compute_start, times.compute_end),
        ):
            assert (first <= last).all()
            assert (last[:-1] <= first[1:]).all()


def test_gaps_say_what_they_wait_for():
    """Kernels issued at 10 and 40 (after a collective at 30); the collective takes 500 ns."""
    code = (
        launch(5), collective(500, AG, name="gather.*"), Record(0, AG), Wait(0, C), launch(7),
    )  # fmt: skip
    timeline = play(together(program(code)), prices(host_launch_ns=10, host_collective_ns=20))
    assert rows(timeline) == [
        ("default", "IDLE_HOST", "host", 0, 10),
        ("default", "COMPUTE", "b0", 10, 15),
        ("default", "IDLE_HOST", "host", 15, 40),
        ("default", "IDLE_COMMUNICATION", "gather.*", 40, 530),
        ("default", "COMPUTE", "b0", 530, 537),
        ("all_gather", "COMMUNICATION", "gather.*", 30, 530),
    ]


def test_what_is_left_after_the_last_kernel_is_accounted_for():
    code = (collective(500, AG), launch(7))
    timeline = play(together(program(code)), prices())
    assert rows(timeline)[:2] == [
        ("default", "COMPUTE", "b0", 0, 7),
        ("default", "IDLE_COMMUNICATION", "all_gather", 7, 500),
    ]


def test_kernels_of_the_optimizer_are_told_apart():
    timeline = play(together(program((launch(7),), phase=Phase.OPTIMIZER)), prices())
    assert rows(timeline) == [("default", "OPTIMIZER", "b0", 0, 7)]


def test_a_call_without_kernels_is_where_the_stream_stands():
    timeline = play(together(program((launch(7),), (), (launch(5),))), prices())
    assert list(timeline.calls[0].compute_start) == [0, 7, 7]
    assert list(timeline.calls[0].compute_end) == [7, 7, 12]


def test_layer_numbers_are_spelled_out():
    timeline = play(together(fsdp(2)), prices())
    assert {"ag.0", "ag.1", "rs.1", "layers.1.backward"} <= set(timeline.spans.names)


def test_counts():
    timeline = play(together(fsdp(2), fsdp(2)), prices())
    assert (timeline.counts.classes, timeline.counts.collectives) == (2, 6)
    assert timeline.counts.launches == 2 * (4 + 2 * 13 + 2 * 26 + 50)


def test_nothing_at_all():
    timeline = play(together(program()), prices())
    assert rows(timeline) == []
    assert len(timeline.calls[0].host_start) == 0


def test_a_host_that_only_waits():
    timeline = play(together(program((HostWait(0),), (HostWait(100),))), prices())
    assert rows(timeline) == []
