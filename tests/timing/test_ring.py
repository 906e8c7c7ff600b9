"""What the ring asks of links, where it can be said by hand, and how fast it is found."""

from __future__ import annotations

from time import perf_counter

import pytest

from simulator.errors import ProgramError
from simulator.hardware.topologies import build, find_topology
from simulator.timing.collectives import Pattern, choose, cost
from simulator.timing.collectives.placement import domains, rails
from tests.timing.star_cluster import StarCluster

MIB = 1 << 20


def on(pattern: Pattern, cluster: StarCluster, kind: str) -> set[float]:
    loads = pattern.loads.items()
    return {round(load, 9) for link, load in loads if cluster.links[link].kind == kind}


def test_inside_a_node_every_port_carries_f() -> None:
    cluster = StarCluster(1)
    pattern = choose("all_gather", MIB, tuple(range(8)), cluster)
    assert on(pattern, cluster, "nvlink") == {7 / 8}
    assert len(pattern.loads) == 16


def test_over_nodes_each_rail_carries_its_share_and_each_gpu_all_of_it() -> None:
    cluster = StarCluster(4)
    pattern = choose("reduce_scatter", MIB, tuple(range(32)), cluster)
    f = 31 / 32
    assert on(pattern, cluster, "nic") == {round(f / 8, 9)}
    assert on(pattern, cluster, "nvlink") == {round(f, 9)}
    bandwidth = cost(pattern, 1 << 34, cluster) - pattern.latency_s(1 << 34)
    assert f * (1 << 34) / bandwidth == pytest.approx(369e9)


def test_slow_nics_bound_it_by_the_sum_of_their_rates() -> None:
    cluster = StarCluster(2, nic=12.0)
    pattern = choose("all_reduce", MIB, tuple(range(16)), cluster)
    bandwidth = cost(pattern, 1 << 34, cluster) - pattern.latency_s(1 << 34)
    assert 2 * 15 / 16 * (1 << 34) / bandwidth == pytest.approx(8 * 12e9)


def test_one_rank_a_node_uses_its_own_nic_only() -> None:
    cluster = StarCluster(4)
    pattern = choose("all_gather", MIB, (3, 11, 19, 27), cluster)
    used = {cluster.links[link].source for link in pattern.loads}
    assert "node0/nic3" in used
    assert not used & {f"node0/nic{rail}" for rail in (0, 1, 2, 4, 5, 6, 7)}
    assert on(pattern, cluster, "nvlink") == set()


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    cluster, members = StarCluster(2), tuple(range(16))
    both = choose("all_reduce", MIB, members, cluster)
    one = choose("all_gather", MIB, members, cluster)
    assert both.factor == 2 * one.factor
    assert both.c_s == 2 * one.c_s
    assert dict(both.loads) == pytest.approx({link: 2 * load for link, load in one.loads.items()})


def test_latency_over_nodes_grows_by_a_step_a_rank() -> None:
    cluster = StarCluster(4)
    alphas = [choose("all_gather", MIB, tuple(range(n)), cluster).alpha_s for n in (16, 32)]
    assert alphas == pytest.approx([15e-6 + 4.5e-6 * 15, 15e-6 + 4.5e-6 * 31])


@pytest.mark.parametrize(("network", "step"), [("efa3", 4.5), ("tcpxo", 6.2), ("unheard-of", 4.5)])
def test_a_network_without_points_takes_its_kinds_or_the_default(network: str, step: float) -> None:
    cluster = StarCluster(2, network=network)
    pattern = choose("all_gather", MIB, tuple(range(16)), cluster)
    assert pattern.alpha_s == pytest.approx((15 + 15 * step) * 1e-6)


def test_gpus_have_the_nics_beside_them() -> None:
    assert [list(rails(g, StarCluster(1, gpus=4, nics=2))) for g in range(4)] == [
        [0],
        [0],
        [1],
        [1],
    ]
    assert list(rails(1, StarCluster(1, gpus=2, nics=8))) == [4, 5, 6, 7]
    assert list(rails(0, StarCluster(1, gpus=2, nics=0))) == []


def test_domains_are_nodes_unless_nvlink_spans_them() -> None:
    assert domains((9, 0, 8, 1), StarCluster(2)) == [(0, 1), (8, 9)]


def test_a_rack_is_one_domain_and_uses_all_its_nics_to_the_next() -> None:
    cluster = StarCluster(6, gpus=4, nics=4, nodes_a_switch=3)
    inside = choose("all_gather", MIB, tuple(range(12)), cluster)
    assert on(inside, cluster, "nic") == set()
    assert inside.alpha_s == pytest.approx(15e-6 * 12 / 8)
    between = choose("all_gather", MIB, tuple(range(24)), cluster)
    assert on(between, cluster, "nic") == {round(23 / 24 / 12, 9)}


def test_a_kind_that_no_algorithm_knows_is_refused() -> None:
    with pytest.raises(ProgramError, match="all_to_none"):
        choose("all_to_none", MIB, (0, 1), StarCluster(1))


def test_512_ranks_are_worked_out_within_reason_and_then_remembered() -> None:
    cluster, members = build(find_topology("dgx-h100"), nodes=64), tuple(range(512))
    start = perf_counter()
    first = choose("all_gather", MIB, members, cluster)
    took = perf_counter() - start
    assert took < 0.25  # 0.01 s on an idle core
    assert choose("all_gather", 2 * MIB, members, cluster) is first
