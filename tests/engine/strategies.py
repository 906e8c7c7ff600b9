"""Random programs over a few streams, events and collectives."""

from __future__ import annotations

from hypothesis import strategies as st

from simulator.program.instructions import HostWait, Record, Wait
from tests.engine.worlds import AG, COPY, RS, C, collective, launch, program

STREAMS = st.sampled_from([C, C, AG, RS, COPY])
SHARED = st.integers(0, 3)
LOCAL = st.integers(100, 102)
EVENTS = SHARED | LOCAL


def instructions(axes=("dp_shard",), sizes=(0, 30, 100, 300), durations=(0, 1, 20, 70, 200)):
    """One instruction; ``sizes`` in bytes, ``durations`` in ns."""
    kinds = st.sampled_from(["all_gather", "reduce_scatter", "all_reduce"])
    return st.one_of(
        st.builds(launch, st.sampled_from(durations), STREAMS),
        st.builds(launch, st.sampled_from(durations), STREAMS),
        st.builds(Record, EVENTS, STREAMS),
        st.builds(Wait, EVENTS, STREAMS),
        st.builds(HostWait, EVENTS),
        st.builds(
            lambda size, stream, axis, kind: collective(size, stream, axis, kind),
            st.sampled_from(sizes), STREAMS, st.sampled_from(axes), kinds,
        ),
    )  # fmt: skip


def programs(**kwargs):
    """A few calls of a few instructions each."""
    call = st.lists(instructions(**kwargs), max_size=12).map(tuple)
    return st.lists(call, min_size=1, max_size=4).map(lambda calls: program(*calls))
