"""Single public figures of nodes that no sweep covers: PCIe, bridges, xGMI and NVL72.

Each is one or a few points, so the bounds say what holds and not how good the model is.
"""

from __future__ import annotations

import pytest

from simulator.hardware.topologies import build, find_topology
from simulator.timing.collectives import choose, cost

GIB = 1 << 30

FIGURES = [
    # topology, nodes, GPUs, collective, bytes, bus bandwidth in GB/s, source
    ("l40s-8", 1, 4, "all_reduce", 536_373_250, 23.7),  # microsoft/vidur@7d47513, PCIe4
    ("l40s-8", 1, 4, "all_reduce", 64 << 20, 23.6),
    ("l40s-8", 1, 8, "all_reduce", 16 * GIB, 24.0),  # NVIDIA's reference figures, PCIe4
    ("azure-nc96ads-a100-v4", 1, 2, "all_reduce", 536_373_250, 195.3),  # microsoft/vidur@7d47513
    ("azure-nc96ads-a100-v4", 1, 4, "all_reduce", 536_373_250, 23.7),
    ("azure-nc80adis-h100-v5", 1, 2, "all_reduce", 64 << 20, 190.7),
    ("mi300x-8", 1, 2, "all_reduce", 4 * GIB, 47.7),  # rccl-tests
    ("mi300x-8", 1, 8, "all_reduce", 4 * GIB, 312.9),
    ("mi300x-8", 2, 16, "all_gather", 16 * GIB, 350.0),  # ROCm/cvs@dddd914, thresholds
    ("mi300x-8", 2, 16, "reduce_scatter", 16 * GIB, 360.0),
    ("mi300x-8", 2, 16, "all_reduce", 16 * GIB, 358.4),  # oracle-quickstart/oci-hpc-oke@61d210a
    ("gb200-nvl72", 8, 32, "all_reduce", 16 * GIB, 680.0),  # NVIDIA's reference figures, Ring
    ("rtx4090-2", 1, 2, "all_reduce", GIB, 16.0),  # the middle of what to plan with, prior
]


@pytest.mark.parametrize(("name", "nodes", "gpus", "kind", "size", "measured"), FIGURES)
def test_large_messages_are_within_12_percent(
    name: str, nodes: int, gpus: int, kind: str, size: int, measured: float
) -> None:
    cluster = build(find_topology(name), nodes)
    pattern = choose(kind, size, tuple(range(gpus)), cluster)
    reached = pattern.factor * size / cost(pattern, size, cluster) / 1e9
    print(f"\n{name} × {nodes}, {gpus} GPUs, {kind}: {reached:.1f} GB/s, measured {measured}")
    assert reached == pytest.approx(measured, rel=0.12)


def test_a_mesh_is_used_by_all_its_links_at_once() -> None:
    cluster = build(find_topology("mi300x-8"))
    pattern = choose("all_gather", GIB, tuple(range(8)), cluster)
    assert pattern.algorithm == "mesh"
    assert len(pattern.loads) == 56


def test_a_bridge_is_better_than_the_hosts_memory() -> None:
    bridged, plain = (build(find_topology(f"rtx3090-2{way}")) for way in ("-nvlink", ""))
    fast, slow = (choose("all_reduce", GIB, (0, 1), cluster) for cluster in (bridged, plain))
    assert 2.5 < cost(slow, GIB, plain) / cost(fast, GIB, bridged) < 3.5


def test_a_rack_starts_as_slowly_as_it_was_measured_to() -> None:
    cluster = build(find_topology("gb200-nvl72"), nodes=18)
    assert choose("all_reduce", GIB, tuple(range(72)), cluster).alpha_s == pytest.approx(
        400e-6, 0.02
    )
