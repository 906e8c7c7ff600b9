"""One rank without contention is a recurrence, kernel by kernel in host order."""

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import play
from simulator.program.instructions import Collective, HostWait, Launch, Record, Stream, Wait
from tests.engine.strategies import programs
from tests.engine.worlds import no_links, prices, rows, together


def recurrence(program, host_costs):
    """End of each stream's work; (stream, start, end) of collectives; host start, end by call."""
    per_launch, per_collective, per_event = host_costs
    host, done, collectives, hosts = 0, dict.fromkeys(Stream, 0), [], []
    shared, worked = {}, dict.fromkeys(Stream, 0)
    for call in program.calls:
        began, events = host, {}
        for i in program.blocks[call.block].instructions:
            held = shared if getattr(i, "event", 100) < 100 else events
            match i:
                case Launch():
                    host += per_launch
                    done[i.stream] = max(done[i.stream], host) + i.kernel.bytes
                    worked[i.stream] = done[i.stream]
                case Collective():
                    host += per_collective
                    start = max(done[i.stream], host)
                    worked[i.stream] = done[i.stream] = start + i.bytes
                    collectives.append((i.stream.value, start, done[i.stream]))
                case Record():
                    host += per_event
                    held[i.event] = done[i.stream]
                case Wait():
                    host += per_event
                    done[i.stream] = max(done[i.stream], held.get(i.event, 0))
                case HostWait():
                    host = max(host, held.get(i.event, 0))
        hosts.append((began, host))
    return worked, sorted(collectives), hosts


HOST_COSTS = st.sampled_from([(0, 0, 0), (10, 25, 2), (60, 60, 0), (1, 1, 1)])


@given(programs(sizes=(1, 30, 300), durations=(1, 20, 70, 200)), HOST_COSTS)
def test_one_rank_without_contention(program, host_costs):
    launch, collective, event = host_costs
    timeline = play(
        together(program, traffic=no_links),
        prices(host_launch_ns=launch, host_collective_ns=collective, host_event_ns=event),
    )
    worked, collectives, hosts = recurrence(program, host_costs)
    spans = [row for row in rows(timeline) if "IDLE" not in row[1]]
    assert worked == {
        stream: max((row[4] for row in spans if row[0] == stream.value), default=0)
        for stream in Stream
    }
    assert collectives == sorted((row[0], *row[3:]) for row in spans if row[1] == "COMMUNICATION")
    assert list(zip(timeline.calls[0].host_start, timeline.calls[0].host_end, strict=True)) == hosts
    kernels = [i for _, i in program.instructions() if isinstance(i, Launch)]
    assert sum(row[4] - row[3] for row in spans if row[:2] == ("default", "COMPUTE")) == sum(
        i.kernel.bytes for i in kernels if i.stream is Stream.COMPUTE
    )
