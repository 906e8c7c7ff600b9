"""The judge of ``ALGORITHMS``: whoever joins that dict must move the right data, and count it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from simulator.hardware.cluster import Cluster, Turning
from simulator.hardware.topologies import build, find_topology
from simulator.timing.collectives import ALGORITHMS, Algorithm, Pattern, choose, cost
from simulator.timing.collectives.placement import domains, rails
from tests.timing.star_cluster import StarCluster

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
GIB = 1 << 30

CLUSTERS: dict[str, Cluster] = {
    "DGX H100": build(find_topology("dgx-h100"), nodes=3),
    "DGX A100, 6 GPUs": build(find_topology("dgx-a100"), nodes=2, gpus_per_node=6),
    "DGX H100, two units": build(find_topology("dgx-h100"), nodes=34),
    "one node": StarCluster(1),
    "four nodes": StarCluster(4),
    "two GPUs a NIC": StarCluster(3, gpus=8, nics=4),
    "four NICs a GPU": StarCluster(2, gpus=2, nics=8),
    "one NIC a node": StarCluster(2, gpus=4, nics=1),
    "racks": StarCluster(6, gpus=4, nics=4, nodes_a_switch=3),
    "NVL72": build(find_topology("gb200-nvl72"), nodes=38),
    "NVL72, one GPU a tray": build(find_topology("gb200-nvl72"), nodes=38, gpus_per_node=1),
    "MI300X": build(find_topology("mi300x-8"), nodes=3),
    "MI300X, 6 GPUs": build(find_topology("mi300x-8"), nodes=2, gpus_per_node=6),
    "two 4090": build(find_topology("rtx4090-2")),
    "eight 3090": build(find_topology("rtx3090-8")),
    "a bridge": build(find_topology("rtx3090-2-nvlink")),
    "g5": build(find_topology("aws-g5.48xlarge"), nodes=3),
    "g6e": build(find_topology("aws-g6e.48xlarge"), nodes=2),
    "p5": build(find_topology("aws-p5"), nodes=2),
    "a2": build(find_topology("gcp-a2-highgpu-8g"), nodes=2),
}
GROUPS = {
    "a DGX H100": ("DGX H100", tuple(range(8, 16))),
    "three DGX H100": ("DGX H100", tuple(range(24))),
    "two of six A100": ("DGX A100, 6 GPUs", (2, 3, 8, 9)),
    "two DGX A100": ("DGX A100, 6 GPUs", tuple(range(12))),
    "over the spines": ("DGX H100, two units", tuple(range(248, 264))),
    "all of one node": ("one node", tuple(range(8))),
    "three of one node": ("one node", (1, 4, 6)),
    "a pair": ("one node", (0, 1)),
    "a rank alone": ("one node", (3,)),
    "all of four nodes": ("four nodes", tuple(range(32))),
    "shuffled": ("four nodes", (9, 0, 25, 17, 8, 1, 24, 16)),
    "one a node": ("four nodes", (5, 13, 21, 29)),
    "half a node each": ("four nodes", (0, 1, 2, 3, 8, 9, 10, 11)),
    "no common rail": ("four nodes", (0, 1, 10, 11)),
    "uneven": ("four nodes", (0, 1, 2, 3, 8, 9)),
    "two GPUs a NIC": ("two GPUs a NIC", tuple(range(24))),
    "four NICs a GPU": ("four NICs a GPU", tuple(range(4))),
    "one NIC a node": ("one NIC a node", tuple(range(8))),
    "one rack": ("racks", tuple(range(12))),
    "two racks": ("racks", tuple(range(24))),
    "an NVL72": ("NVL72", tuple(range(72))),
    "two trays": ("NVL72", tuple(range(8))),
    "two NVL72": ("NVL72, one GPU a tray", tuple(range(36))),
    "parts of three NVL72": ("NVL72", (68, 69, 70, 71, 72, 73, 74, 75, 144, 145, 146, 147)),
    "a MI300X node": ("MI300X", tuple(range(8))),
    "five MI300X": ("MI300X", (1, 2, 4, 5, 7)),
    "four MI300X": ("MI300X", (0, 1, 2, 3)),
    "three MI300X nodes": ("MI300X", tuple(range(24))),
    "halves of MI300X nodes": ("MI300X", (0, 1, 2, 3, 8, 9, 10, 11)),
    "unlike parts of MI300X nodes": ("MI300X", (0, 1, 2, 8, 9, 10, 11, 12)),
    "six of MI300X nodes": ("MI300X, 6 GPUs", tuple(range(12))),
    "two 4090": ("two 4090", (0, 1)),
    "eight 3090": ("eight 3090", tuple(range(8))),
    "two of eight 3090": ("eight 3090", (2, 7)),
    "a bridge": ("a bridge", (0, 1)),
    "a g5": ("g5", tuple(range(8))),
    "three g5": ("g5", tuple(range(24))),
    "two g6e": ("g6e", tuple(range(16))),
    "two p5": ("p5", tuple(range(16))),
    "two a2": ("a2", tuple(range(16))),
}


def trials() -> Iterator[object]:
    for name, algorithm in ALGORITHMS.items():
        for group, (where, members) in GROUPS.items():
            for kind in KINDS:
                if algorithm.applies(kind, members, CLUSTERS[where]):
                    yield pytest.param(algorithm, kind, group, id=f"{name}-{kind}-{group}")


trial = pytest.mark.parametrize(("algorithm", "kind", "group"), list(trials()))


def pattern_of(algorithm: Algorithm, kind: str, group: str) -> tuple[Pattern, Cluster]:
    where, members = GROUPS[group]
    return algorithm.pattern(kind, members, CLUSTERS[where]), CLUSTERS[where]


def closed_form(kind: str, n: int) -> float:
    """Bytes that each rank must send per byte of S: a pass is (n-1)/n."""
    passes = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "all_to_all": 1}
    return passes[kind] * (n - 1) / n


def replay(algorithm: Algorithm, kind: str, n: int) -> list[dict[int, Counter[int]]]:
    """What each position holds at the end: chunk -> how often each position's part is in it."""
    if kind == "all_gather":
        held = [{p: Counter([p])} for p in range(n)]
    elif kind == "all_to_all":
        held = [{p * n + q: Counter([p]) for q in range(n)} for p in range(n)]
    else:
        held = [{chunk: Counter([p]) for chunk in range(n)} for p in range(n)]
    for step in algorithm.steps(kind, n):
        arriving = [(one, Counter(held[one.source][one.chunk])) for one in step]
        for one, content in arriving:
            if one.reduce:
                held[one.target][one.chunk] = held[one.target][one.chunk] + content
            else:
                held[one.target][one.chunk] = content
    return held


@trial
def test_every_member_ends_with_exactly_the_right_chunks(
    algorithm: Algorithm, kind: str, group: str
) -> None:
    n = len(GROUPS[group][1])
    held = replay(algorithm, kind, n)
    summed = Counter(range(n))
    for position in range(n):
        if kind == "all_gather":
            assert held[position] == {chunk: Counter([chunk]) for chunk in range(n)}
        elif kind == "all_to_all":
            mine = {p * n + position: Counter([p]) for p in range(n)}
            assert {chunk: held[position].get(chunk) for chunk in mine} == mine
        elif kind == "all_reduce":
            assert held[position] == dict.fromkeys(range(n), summed)
        else:
            assert held[position][position] == summed


@trial
def test_bytes_sent_are_bytes_received_are_the_closed_form(
    algorithm: Algorithm, kind: str, group: str
) -> None:
    n = len(GROUPS[group][1])
    sent, received = Counter[int](), Counter[int]()
    for step in algorithm.steps(kind, n):
        for one in step:
            assert one.source != one.target
            sent[one.source] += 1
            received[one.target] += 1
    factor = closed_form(kind, n)
    for position in range(n):
        assert sent[position] / n == received[position] / n == pytest.approx(factor)
    pattern, _ = pattern_of(algorithm, kind, group)
    assert pattern.factor == pytest.approx(factor)


@trial
def test_loads_are_what_the_schedule_puts_on_the_links(
    algorithm: Algorithm, kind: str, group: str
) -> None:
    pattern, cluster = pattern_of(algorithm, kind, group)
    members = GROUPS[group][1]
    n = len(members)
    channels = algorithm.channels(members, cluster)
    assert sum(channel.share for channel in channels) == pytest.approx(1.0)
    loads: dict[int, float] = defaultdict(float)
    for order, rail, share, lane in channels:
        assert sorted(order) == sorted(members)
        for step in algorithm.steps(kind, n):
            for one in step:
                hop = order[one.source], order[one.target]
                for link in cluster.route(*hop, _taken(hop[0], rail, lane, cluster)):
                    loads[link] += share / n * pattern.over.get(cluster.links[link].kind, 1.0)
    assert dict(pattern.loads) == pytest.approx(dict(loads))
    assert all(over >= 1 for over in pattern.over.values())


def _taken(sender: int, rail: int | None, lane: int | None, cluster: Cluster) -> int | None:
    beside = rails(sender, cluster)
    return rail if lane is None or not beside else beside[lane]


@trial
def test_it_never_beats_the_ports_of_a_member_or_a_domain(
    algorithm: Algorithm, kind: str, group: str
) -> None:
    pattern, cluster = pattern_of(algorithm, kind, group)
    members = GROUPS[group][1]
    seconds = cost(pattern, GIB, cluster) - pattern.latency_s(GIB)
    n = len(members)
    for member in members:
        name = cluster.devices[member].name
        ports = sum(link.bytes_per_s for link in cluster.links if link.source == name)
        assert seconds >= closed_form(kind, n) * GIB / ports * (1 - 1e-9)
    passes = closed_form(kind, n) * n / max(1, n - 1)
    for domain in domains(members, cluster):
        outside = n - len(domain)
        nodes = {f"node{cluster.devices[member].node}" for member in domain}
        out = [
            link.bytes_per_s
            for link in cluster.links
            if link.kind == "nic" and link.source.split("/")[0] in nodes
        ]
        # a domain must get what the others hold, and give the same to them; of an all_to_all
        # each member has something of its own for each of the others
        held = len(domain) if kind == "all_to_all" else 1
        if outside:
            assert seconds >= passes * held * outside / n * GIB / sum(out) * (1 - 1e-9)


@trial
def test_order_of_ranks_and_size_change_no_load(
    algorithm: Algorithm, kind: str, group: str
) -> None:
    pattern, cluster = pattern_of(algorithm, kind, group)
    again = algorithm.pattern(kind, GROUPS[group][1][::-1], cluster)
    assert again == pattern
    assert pattern.latency_s(0) <= pattern.latency_s(GIB)
    assert cost(pattern, GIB, cluster) <= cost(pattern, 2 * GIB, cluster)


@trial
def test_it_turns_with_the_nodes(algorithm: Algorithm, kind: str, group: str) -> None:
    """Ranks on other nodes that are like theirs load links that are like theirs, alike."""
    pattern, cluster = pattern_of(algorithm, kind, group)
    if not isinstance(cluster, Turning):
        return
    nodes, gpus = cluster.devices[-1].node + 1, cluster.devices[-1].local + 1
    turn = cluster.turn_nodes
    block = nodes // turn * turn
    members = GROUPS[group][1]
    if max(members) + turn * gpus >= block * gpus:
        return
    moved = tuple(member + turn * gpus for member in members)
    again = algorithm.pattern(kind, moved, cluster)
    first = cluster.first_alike([(turn, block)])
    one, other = (
        Counter((first(link), load) for link, load in which.loads.items())
        for which in (pattern, again)
    )
    assert one == other
    assert (again.alpha_s, again.c_s, again.factor) == (
        pattern.alpha_s,
        pattern.c_s,
        pattern.factor,
    )


def test_the_chosen_pattern_is_the_cheapest() -> None:
    cluster, members = CLUSTERS["four nodes"], tuple(range(32))
    best = min(
        cost(algorithm.pattern("all_reduce", members, cluster), GIB, cluster)
        for algorithm in ALGORITHMS.values()
        if algorithm.applies("all_reduce", members, cluster)
    )
    assert cost(choose("all_reduce", GIB, members, cluster), GIB, cluster) == best
