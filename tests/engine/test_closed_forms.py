"""What can be worked out by hand, in ns; a link carries a byte a ns unless it says otherwise."""

import pytest

from simulator.deploy import Traffic, deploy
from simulator.deploy.deployment import SCALE
from simulator.engine import play
from simulator.plan.mesh import Mesh
from simulator.program.instructions import HostWait, Record, Wait
from simulator.timing.prices import Overlap
from tests.engine.worlds import (
    AG,
    RS,
    C,
    Star,
    collective,
    fsdp,
    launch,
    no_links,
    on_one_link,
    prices,
    program,
    ring,
    rows,
    together,
)

OVERLAP = Overlap(compute=(83, 100), communication=(9, 10))


def test_a_ring_on_idle_links_is_alpha_beta():
    """4 ranks: alpha 4 us, then 3/4 of 8 MB at 4 GB/s."""
    deployment = deploy(
        program((collective(8_000_000),)), Star(1, 4), Mesh(sizes=(1, 1, 4, 1, 1)), choose=ring
    )
    end = 4_000 + 1_500_000 + 1  # rates round down, ends round up
    assert rows(play(deployment, prices())) == [
        ("default", "IDLE_COMMUNICATION", "all_gather", 0, end),
        ("all_gather", "COMMUNICATION", "all_gather", 0, end),
    ]


def test_a_ring_over_nodes_is_as_fast_as_its_slowest_link():
    deployment = deploy(
        program((collective(8_000_000),)), Star(2, 2), Mesh(sizes=(1, 1, 4, 1, 1)), choose=ring
    )
    assert play(deployment, prices()).spans.end.max() == 4_000 + 6_000_000 + 1


def test_an_infinite_network_leaves_the_compute_path():
    deployment = together(fsdp(6), traffic=lambda _: Traffic(latency_ns=0, weights=()))
    timeline = play(deployment, prices())
    compute = [row for row in rows(timeline) if row[0] == "default"]
    work = 6 * (3_000 + 12 * 33_333) + 6 * (3_000 + 24 * 33_333 + 4_000) + 50 * 1_000
    exposed = 2 * 2_000  # the copy-in of the first gather, and of the last layer's second
    assert compute[-1][4] == exposed + work


def test_an_infinite_gpu_leaves_the_traffic():
    """12 gathers and 6 reduce-scatters of 400 kB over one link."""
    deployment = together(fsdp(6, compute=0))
    end = play(deployment, prices(launch_ns=lambda b, g: [0] * len(b.instructions))).spans.end.max()
    assert end == 18 * 400_000


def test_many_tiny_kernels_take_as_long_as_their_launches():
    timeline = play(
        together(program(tuple(launch(10) for _ in range(100)))), prices(host_launch_ns=50)
    )
    assert rows(timeline) == [
        ("default", "IDLE_HOST", "host", 0, 50),
        ("default", "IDLE_HOST", "host", 50, 4_010),
        ("default", "COMPUTE", "b0", 4_010, 100 * 50 + 10),
    ]


def test_one_big_kernel_hides_the_launches_behind_it():
    kernels = (launch(10_000), *(launch(10) for _ in range(100)))
    timeline = play(together(program(kernels)), prices(host_launch_ns=50))
    assert rows(timeline) == [
        ("default", "IDLE_HOST", "host", 0, 50),
        ("default", "COMPUTE", "b0", 50, 11_050),
    ]


def test_two_collectives_halve_a_link_and_the_longer_gets_it_back():
    """1000 B and 3000 B: both at half a byte a ns until 2000, then 2000 B more at full rate."""
    both = program((collective(1_000, AG), collective(3_000, RS, kind="reduce_scatter")))
    timeline = play(together(both), prices())
    assert [row for row in rows(timeline) if row[0] != "default"] == [
        ("all_gather", "COMMUNICATION", "all_gather", 0, 2_000),
        ("reduce_scatter", "COMMUNICATION", "reduce_scatter", 0, 4_000),
    ]


def test_serial_groups_take_turns():
    both = program((collective(1_000, AG), collective(3_000, RS, kind="reduce_scatter")))
    timeline = play(together(both), prices(serial_groups=True))
    assert [row[3:] for row in rows(timeline) if row[1] == "COMMUNICATION"] == [
        (0, 1_000),
        (1_000, 4_000),
    ]


def test_latency_holds_no_bandwidth():
    both = program((collective(1_000, AG), collective(1_000, RS, kind="reduce_scatter")))
    late = {"all_gather": 0, "reduce_scatter": 1_000}
    deployment = together(
        both, traffic=lambda c: Traffic(latency_ns=late[c.kind], weights=((0, SCALE),))
    )
    assert [row[3:] for row in rows(play(deployment, prices())) if row[1] == "COMMUNICATION"] == [
        (0, 1_000),
        (0, 2_000),
    ]


def test_overlap_slows_both():
    """Gather of 900 B beside 2000 ns of kernels.

    The gather runs at .9 byte/ns and ends at 1000, when 830 ns of kernels are done; the other
    1170 end at 2170.
    """
    timeline = play(together(program((collective(900), launch(2_000)))), prices(overlap=OVERLAP))
    assert rows(timeline) == [
        ("default", "COMPUTE", "b0", 0, 2_170),
        ("all_gather", "COMMUNICATION", "all_gather", 0, 1_000),
    ]


def test_overlap_ends_with_the_kernels():
    """830 ns of kernels end at 1000, when 900 B of 1400 are through; 500 more at full rate."""
    timeline = play(together(program((collective(1_400), launch(830)))), prices(overlap=OVERLAP))
    assert [row[3:] for row in rows(timeline) if "IDLE" not in row[1]] == [(0, 1_000), (0, 1_500)]


def test_overlap_goes_on_from_segment_to_segment():
    """Two segments of 415 ns do what one of 830 does."""
    code = (collective(1_400), launch(415), Record(0, C), launch(415))
    timeline = play(together(program(code)), prices(overlap=OVERLAP))
    assert [row[3:] for row in rows(timeline) if "IDLE" not in row[1]] == [
        (0, 500),
        (500, 1_000),
        (0, 1_500),
    ]


def test_overlap_lasts_while_any_member_computes():
    """Kernels of 415 ns here and 830 there: the flow is slowed until 1000."""
    here, there = (program((collective(1_400), launch(ns))) for ns in (415, 830))
    timeline = play(together(here, there), prices(overlap=OVERLAP))
    assert [row[3:] for row in rows(timeline, 0) if "IDLE" not in row[1]] == [(0, 500), (0, 1_500)]
    assert [row[3:] for row in rows(timeline, 1) if "IDLE" not in row[1]] == [
        (0, 1_000),
        (0, 1_500),
    ]


def test_overlap_slows_kernels_in_the_latency_phase_too():
    deployment = together(program((collective(83), launch(830))), traffic=no_links)
    timeline = play(deployment, prices(overlap=OVERLAP))
    assert rows(timeline)[0] == ("default", "COMPUTE", "b0", 0, 845)  # 83 · .83 = 68.89 done by 83


def test_one_slow_member_makes_the_group_wait():
    fast, slow = (
        program((launch(10), collective(100, C))),
        program((launch(70), collective(100, C))),
    )
    timeline = play(together(fast, slow), prices())
    assert rows(timeline, 0) == [
        ("default", "COMPUTE", "b0", 0, 10),
        ("default", "IDLE_COMMUNICATION", "all_gather", 10, 70),
        ("default", "COMMUNICATION", "all_gather", 70, 170),
    ]


def test_a_wait_for_an_unrecorded_event_does_not_block():
    timeline = play(together(program((Wait(5, C), launch(10), HostWait(6), launch(1)))), prices())
    assert timeline.spans.end.max() == 11


def test_a_wait_means_the_latest_record_before_it():
    """The event is recorded after 1000 ns on AG, waited for, and recorded again much later."""
    calls = (
        (launch(1_000, AG), Record(0, AG)),
        (Wait(0, C), launch(1)),
        (launch(9_000, AG), Record(0, AG)),
        (Wait(0, RS), launch(1, RS)),
    )
    times = play(together(program(*calls)), prices()).calls[0]
    assert times.compute_end[1] == 1_001
    assert play(together(program(*calls)), prices()).spans.end.max() == 10_001


def test_a_record_behind_a_wait_waits_too():
    """COMPUTE waits for RS, which holds no work but a wait for AG."""
    code = (
        launch(500, AG), Record(0, AG), Wait(0, RS), Record(1, RS), Wait(1, C), launch(1),
    )  # fmt: skip
    assert play(together(program(code)), prices()).spans.end.max() == 501


def test_a_host_wait_delays_what_is_issued_after_it():
    code = (launch(1_000), Record(0, C), HostWait(0), launch(5, AG), launch(5))
    timeline = play(together(program(code)), prices(host_launch_ns=100))
    assert rows(timeline) == [
        ("default", "IDLE_HOST", "host", 0, 100),
        ("default", "COMPUTE", "b0", 100, 1_100),
        ("default", "IDLE_HOST", "host", 1_100, 1_300),
        ("default", "COMPUTE", "b0", 1_300, 1_305),
        ("all_gather", "COMPUTE", "b0", 1_200, 1_205),
    ]
    assert timeline.calls[0].host_end[0] == 1_300


@pytest.mark.parametrize("size", [0, 1])
def test_a_collective_of_next_to_nothing(size):
    deployment = together(program((collective(size),)), traffic=on_one_link(7))
    assert play(deployment, prices()).spans.end.max() == 7 + size
