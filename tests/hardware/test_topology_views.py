"""A cluster in words and in a picture."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from simulator.data import data_dir
from simulator.hardware.cluster import Cluster
from simulator.hardware.topologies import build, find_topology, topology_names
from simulator.report.topology import describe_topology, draw_topology
from simulator.report.topology_layout import scene_of
from simulator.report.topology_scene import Box

SIZES = [(1, 8), (1, 1), (2, 3), (8, 8), (40, 8), (200, 8)]


def many_nics(folder: Path, nics: int) -> Cluster:
    text = (data_dir("topologies") / "dgx-a100.yaml").read_text()
    (folder / "many.yaml").write_text(text.replace("nics: 8", f"nics: {nics}"))
    return build(find_topology("many", folder), nodes=40)


def test_the_words() -> None:
    text = describe_topology(build(find_topology("dgx-h100"), nodes=64))
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[0] == "dgx-h100 × 64: 512 GPUs"
    assert (
        "nodes 64, each with 8 GPUs, 8 NICs, 8 PCIe switches, 2 CPUs, 2 TB of host memory" in rows
    )
    assert "network ib-ndr, 16 leaves, 16 spines" in rows
    assert "nvlink GPU – NVSwitch 369 GB/s 300 ns 512 189 TB/s" in rows
    assert "nic NIC – leaf 48.5 GB/s 300 ns 512 24.8 TB/s" in rows
    assert "Bisection: 11.8 TB/s from half to half, 46.1 GB/s for each GPU of a half." in rows


def test_one_node_has_no_network_and_no_bisection() -> None:
    text = describe_topology(build(find_topology("dgx-a100")))
    assert "network" not in text
    assert "Bisection" not in text


def test_the_words_of_a_rack() -> None:
    text = describe_topology(build(find_topology("gb200-nvl72"), nodes=36))
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "nodes 36, each with 4 GPUs, 4 NICs, 2 CPUs, 960 GB of host memory" in rows
    assert "NVLink 2 NVSwitches, each for 72 GPUs" in rows
    assert "host copies 250 GB/s each way for each GPU" in rows


SHAPES = [
    *("dgx-h100", "dgx-a100", "gb200-nvl72", "mi300x-8", "rtx3090-2-nvlink", "rtx4090-8"),
    *("aws-p5", "aws-p4d", "aws-g5.48xlarge", "aws-g6e.48xlarge", "gcp-a2-highgpu-8g"),
]


@pytest.mark.parametrize("name", topology_names())
def test_boxes_of_every_topology_stand_apart(name: str) -> None:
    check(build(find_topology(name)))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("nodes", "gpus"), SIZES)
def test_boxes_stand_apart_on_the_sheet(name: str, nodes: int, gpus: int) -> None:
    spec = find_topology(name)
    check(build(spec, min(nodes, spec.max_nodes), min(gpus, spec.gpus_per_node)))


@pytest.mark.parametrize("nics", [4, 32])
def test_boxes_of_many_nics_stand_apart(tmp_path: Path, nics: int) -> None:
    check(many_nics(tmp_path, nics))


def check(cluster: Cluster) -> None:
    boxes = scene_of(cluster).boxes
    for box in boxes:
        assert box.x >= 28
        assert box.y >= 4
        assert box.x + box.width <= 158
        assert box.y + box.height <= 76
    things = [box for box in boxes if box.fill != "node"]
    for a, b in combinations(things, 2):
        assert not overlap(a, b), (a, b)


def overlap(a: Box, b: Box) -> bool:
    wide = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    high = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return wide > 1e-9 and high > 1e-9


def test_equal_clusters_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_topology(build(find_topology("dgx-h100"), nodes=40), tmp_path / name)
    data = (tmp_path / "a.png").read_bytes()
    assert data == (tmp_path / "b.png").read_bytes()
    assert data.startswith(b"\x89PNG")
