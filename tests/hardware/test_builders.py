"""The judge of builders: what every topology file of every builder must do, at several sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from simulator.hardware.builders import BUILDERS
from simulator.hardware.cluster import Cluster, Link
from simulator.hardware.graph import graph
from simulator.hardware.topologies import build, find_topology, topology_names
from simulator.timing.collectives.placement import crosses_network

SIZES = [(1, 1), (2, None), (33, None), (70, 5)]
"""Nodes and GPUs in each: one unit, part of a second, several."""


def trials() -> Iterator[tuple[str, int, int | None]]:
    """Every topology small, and one of each shape at the other sizes."""
    shapes = set()
    for name in topology_names():
        spec = find_topology(name)
        shape = type(spec.builder), spec.gpus_per_node, build(spec).nics(0)
        yield name, 1, None
        yield name, min(2, spec.max_nodes), min(3, spec.gpus_per_node)
        if shape not in shapes:
            shapes.add(shape)
            yield from ((name, *size) for size in SIZES if size[0] <= spec.max_nodes)


@pytest.fixture(params=trials(), ids=lambda param: f"{param[0]}-{param[1]}x{param[2] or 'all'}")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    name, nodes, gpus = request.param
    spec = find_topology(name)
    return build(spec, nodes, gpus and min(gpus, spec.gpus_per_node))


def sampled(cluster: Cluster) -> list[int]:
    """The first and the last devices, and some between."""
    count = len(cluster.devices)
    return sorted({*range(min(count, 9)), *range(0, count, max(1, count // 7)), count - 1})


def walk(cluster: Cluster, route: tuple[int, ...]) -> list[Link]:
    """The links of a route, which must join up."""
    links = [cluster.links[index] for index in route]
    assert all(a.target == b.source for a, b in pairwise(links))
    return links


def legs(links: list[Link]) -> list[list[Link]]:
    """A route, cut where it stops in the memory of a host to be read again."""
    stops = [index + 1 for index, link in enumerate(links) if link.target.endswith("/host")]
    return [links[a:b] for a, b in pairwise([0, *stops, len(links)])]


def test_every_builder_has_a_topology() -> None:
    used = {type(find_topology(name).builder) for name in topology_names()}
    assert used == set(BUILDERS.values())


def test_every_pair_has_a_route_there_and_back(cluster: Cluster) -> None:
    for source in sampled(cluster):
        for target in sampled(cluster):
            there = walk(cluster, cluster.route(source, target))
            if source == target:
                assert there == []
                continue
            assert there[0].source == cluster.devices[source].name
            assert there[-1].target == cluster.devices[target].name
            back = walk(cluster, cluster.route(target, source))
            assert back[0].source == there[-1].target
            assert back[-1].target == there[0].source


def test_no_route_visits_a_vertex_twice(cluster: Cluster) -> None:
    for source in sampled(cluster):
        for target in sampled(cluster):
            for rail in [None, *range(cluster.nics(0))]:
                for leg in legs(walk(cluster, cluster.route(source, target, rail))):
                    visited = [link.source for link in leg] + [link.target for link in leg[-1:]]
                    assert len(visited) == len(set(visited))


def test_routes_between_nodes_use_the_rail(cluster: Cluster) -> None:
    last = len(cluster.devices) - 1
    if not crosses_network(cluster, 0, last):
        assert cluster.route(0, last, 0) == cluster.route(0, last)
        return
    for rail in range(cluster.nics(0)):
        links = walk(cluster, cluster.route(0, last, rail))
        nics = [link for link in links if link.kind == "nic"]
        assert [nics[0].source, nics[-1].target] == [
            f"node0/nic{rail}",
            f"node{cluster.devices[last].node}/nic{rail}",
        ]


def test_routes_are_as_short_as_the_graph_allows(cluster: Cluster) -> None:
    """Same rail: no fewer hops exist. Inside a node: the path of least latency."""
    import networkx as nx

    found = graph(cluster)
    same_rail = [d for d, device in enumerate(cluster.devices) if device.local == 0]
    for target in same_rail[1:6] + same_rail[-1:]:
        if target:
            ends = cluster.devices[0].name, cluster.devices[target].name
            assert len(cluster.route(0, target)) == nx.shortest_path_length(found, *ends)
    for target in range(1, sum(device.node == 0 for device in cluster.devices)):
        for leg in legs(walk(cluster, cluster.route(0, target))):
            ends = leg[0].source, leg[-1].target
            assert sum(link.latency_s for link in leg) == pytest.approx(
                nx.shortest_path_length(found, *ends, weight="latency")
            )


def test_links_have_rates_and_a_way_back(cluster: Cluster) -> None:
    ways = {(link.source, link.target): link for link in cluster.links}
    assert len(ways) == len(cluster.links)
    assert [link.bytes_per_s for link in cluster.links] == list(cluster.capacities)
    for (source, target), link in ways.items():
        back = ways[target, source]
        assert link.bytes_per_s > 0
        assert link.latency_s > 0
        assert (back.kind, back.bytes_per_s) == (link.kind, link.bytes_per_s)


def test_every_gpu_reaches_the_memory_of_its_host(cluster: Cluster) -> None:
    for device in sampled(cluster):
        name, node = cluster.devices[device].name, cluster.devices[device].node
        there = walk(cluster, cluster.to_host(device))
        back = walk(cluster, cluster.from_host(device))
        assert (there[0].source, there[-1].target) == (name, f"node{node}/host")
        assert (back[0].source, back[-1].target) == (f"node{node}/host", name)


def test_devices_stand_node_by_node(cluster: Cluster) -> None:
    places = [(device.node, device.local) for device in cluster.devices]
    nodes, gpus = places[-1][0] + 1, places[-1][1] + 1
    assert places == [(node, local) for node in range(nodes) for local in range(gpus)]
    assert all(d.name == f"node{d.node}/gpu{d.local}" for d in cluster.devices)
    assert {link.source.partition("/")[0] for link in cluster.links if "node" in link.source} == {
        f"node{node}" for node in range(nodes)
    }


def test_nodes_are_alike(cluster: Cluster) -> None:
    """The same GPUs, NICs and links in each, whatever stands around."""
    inside: dict[str, list[tuple[str, str, str, float]]] = {}
    for link in cluster.links:
        (a, _, source), (b, _, target) = (v.rpartition("/") for v in (link.source, link.target))
        if a == b and a.startswith("node"):
            inside.setdefault(a, []).append((source, target, link.kind, link.bytes_per_s))
    assert all(links == inside["node0"] for links in inside.values())


def test_the_bisection_is_the_maximum_flow(cluster: Cluster) -> None:
    import networkx as nx

    nodes = cluster.devices[-1].node + 1
    if nodes == 1:
        assert cluster.bisection_bytes_per_s == 0
        return
    found = graph(cluster)
    for vertex, kind in list(found.nodes(data="kind")):
        if kind in ("nic", "gpu"):
            node = int(vertex.partition("/")[0].removeprefix("node"))
            ends = ("first", vertex) if node < nodes // 2 else (vertex, "second")
            found.add_edge(*ends)
    network = nx.restricted_view(
        found, [v for v, kind in found.nodes(data="kind") if kind in ("pcie", "cpu")], []
    )
    flow = nx.maximum_flow_value(network, "first", "second")
    assert cluster.bisection_bytes_per_s == pytest.approx(flow)
