"""Steps tile the compute stream, and what fills them adds up."""

from itertools import pairwise

import numpy as np
import pytest
from synthetic import synthetic_trace

from simulator.trace.memory import CallFacts
from simulator.trace.steps import moment_ns, phase_windows, step_windows, time_parts
from simulator.trace.timeline import CallTimes, EngineCounts, SpanKind, Spans, Timeline


def column(*values):
    return np.array(values, np.int64)


FACTS = CallFacts(
    step=(0, 0, 0, 1, 1),
    phase=("init", "forward", "backward", "forward", "backward"),
    name=("init", "f", "b", "f", "b"),
)
TIMES = CallTimes(
    host_start=column(0, 0, 0, 0, 0),
    host_end=column(0, 0, 0, 0, 0),
    compute_start=column(0, 10, 40, 110, 150),
    compute_end=column(5, 40, 100, 150, 190),
)


def test_a_step_begins_where_the_one_before_ended():
    assert step_windows(FACTS, TIMES) == ((5, 100), (100, 190))


def test_spans_are_clipped_to_the_step_and_the_rest_is_idle():
    kinds = (SpanKind.COMPUTE, SpanKind.IDLE_HOST, SpanKind.COMPUTE, SpanKind.IDLE_COMMUNICATION,
             SpanKind.COMMUNICATION, SpanKind.OPTIMIZER, SpanKind.COMMUNICATION)  # fmt: skip
    start, end = column(90, 110, 115, 130, 150, 160, 100), column(110, 115, 130, 150, 155, 175, 190)
    spans = Spans(
        rank_class=column(*[0] * 7),
        stream=column(0, 0, 0, 0, 0, 0, 2),
        call=column(*[3] * 7),
        kind=column(*kinds),
        name=column(*[0] * 7),
        start=start,
        end=end,
        names=("x",),
    )
    counts = EngineCounts(classes=1, events=0, launches=0, collectives=0)
    timeline = Timeline(class_of_rank=(0,), spans=spans, calls=(TIMES,), counts=counts)
    parts = time_parts(timeline, 0, (100, 190))
    assert (parts.compute, parts.host, parts.exposed_communication) == (25, 5, 25)
    assert (parts.optimizer, parts.bubble, parts.offload, parts.idle) == (15, 0, 0, 20)
    assert parts.total == 90


def test_a_moment_lies_between_the_ends_of_its_call():
    assert moment_ns(TIMES, [1, 1, 1, 4], [0.0, 0.5, 1.0, 0.25]).tolist() == [10, 25, 40, 160]


def test_phases_without_times_are_places_among_the_calls():
    report = synthetic_trace(timed=False).memory[0]
    windows = phase_windows(report, None)
    assert [window[:2] for window in windows[:3]] == [
        (0, "init"), (0, "forward"), (0, "backward")
    ]  # fmt: skip
    assert windows[0][2:] == (0.0, 1.0)
    assert windows[-1][3] == len(report.calls.name)
    assert all(a[3] == b[2] for a, b in pairwise(windows))


def test_phases_with_times_end_with_the_run():
    trace = synthetic_trace()
    windows = phase_windows(trace.memory[0], trace.timeline.calls[0])
    assert windows[-1][3] == pytest.approx(trace.timeline.calls[0].compute_end[-1] / 1e9)
