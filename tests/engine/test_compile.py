from simulator.engine.compile import (
    COMPUTE,
    INDEX,
    AwaitEvent,
    HostCosts,
    Join,
    Pause,
    Segment,
    SetEvent,
    compile_block,
)
from simulator.program.instructions import Free, HostWait, Mark, Record, Wait
from simulator.program.program import Block
from tests.engine.worlds import AG, COPY, C, collective, launch

COSTS = HostCosts(launch=5, collective=7, event=1)


def compiled(*instructions):
    durations = [i.kernel.bytes for i in instructions if hasattr(i, "kernel")]
    return compile_block(Block(name="b", instructions=instructions), durations, COSTS)


def test_launches_of_a_stream_are_one_segment_across_what_it_does_not_see():
    gather = collective(8, AG)
    block = compiled(
        launch(10), Free(0), launch(1, COPY), Mark("m"), Record(0, COPY), gather, launch(20)
    )
    assert block.operations == (
        Segment(INDEX[COPY], "b", (1,), (10,), 1, 11),
        SetEvent(INDEX[COPY], 0),
        Join(INDEX[AG], gather, 18),
        Segment(COMPUTE, "b", (10, 20), (5, 23), 30, 43),
    )
    assert (block.host_ns, block.launches) == (23, 3)


def test_what_a_stream_sees_ends_its_segment():
    block = compiled(launch(1), Record(0, C), launch(2), Wait(1, C), launch(3), collective(8, C))
    assert [type(operation) for operation in block.operations] == [
        Segment, SetEvent, Segment, AwaitEvent, Segment, Join,
    ]  # fmt: skip


def test_a_host_wait_ends_all_segments_and_host_time_starts_again():
    block = compiled(launch(1), launch(2, AG), HostWait(0), launch(3))
    assert block.operations == (
        Segment(COMPUTE, "b", (1,), (5,), 1, 6),
        Segment(INDEX[AG], "b", (2,), (10,), 2, 12),
        Pause(0, 10),
        Segment(COMPUTE, "b", (3,), (5,), 3, 8),
    )
    assert block.host_ns == 5


def test_an_empty_block():
    assert compiled() == ((), 0, 0)
