"""Topologies and GPUs: numbers of the packaged ones, files of the user's, mistakes in them."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.data import data_dir
from simulator.documents.files import read_map
from simulator.documents.mistakes import Mistakes
from simulator.documents.node import plain
from simulator.dtypes import DType
from simulator.errors import ScenarioError, UnknownNameError, UserError
from simulator.hardware.catalogue import gpu, gpu_names
from simulator.hardware.cluster import Cluster
from simulator.hardware.topologies import build, find_topology, topology_names
from simulator.scenario import load

GPU = """
family: H100
usable: 79 GiB
hbm: 3 TB/s
peaks: {bf16: 900 TFLOP/s}
sms: 100
tdp: 600 W
source: a test
"""


def packaged(name: str) -> str:
    return (data_dir("topologies") / f"{name}.yaml").read_text()


def vertices(cluster: Cluster, *routes: tuple[int, ...]) -> list[list[str]]:
    paths = []
    for route in routes:
        links = [cluster.links[index] for index in route]
        paths.append([links[0].source, *(link.target for link in links)])
    return paths


def test_the_names() -> None:
    assert set(gpu_names()) >= {
        "a100-sxm-40gb",
        "a100-sxm-80gb",
        "b200-sxm-180gb",
        "h100-sxm-80gb",
        "h100-sxm-96gb-500w",
        "h200-sxm-141gb",
    }
    assert set(topology_names()) >= {
        *("dgx-a100", "dgx-a100-40gb", "dgx-h100", "hgx-h100-96gb", "hgx-h200", "dgx-b200"),
        *("gb200-nvl72", "mi300x-8", "rtx4090-2", "rtx4090-8", "rtx3090-2", "rtx3090-8"),
        *("a10g-8", "l40s-8", "aws-p4d", "aws-p5", "aws-g5.48xlarge", "gcp-a3-megagpu-8g"),
        *("azure-nd96isr-h100-v5", "oci-bm.gpu.mi300x.8", "lambda-8xh100", "coreweave-gb200"),
    }


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_is_plausible(name: str) -> None:
    card = gpu(name)
    label = int(re.findall(r"(\d+)gb", name)[0])
    assert 0.91 < card.usable_bytes / 2**30 / label <= 1.0
    assert card.power_watts <= card.tdp_watts
    assert card.peak_flops[DType.BF16] > card.peak_flops[DType.FP32]
    assert card.source


def test_the_gpu_of_torchtitans_logs() -> None:
    card = gpu("h100-sxm-96gb-500w")
    assert f"{card.usable_bytes / 2**30:.2f}" == "95.04"
    assert (card.power_watts, card.tdp_watts, card.hbm_bytes_per_s) == (500, 700, 2.4e12)


@pytest.mark.parametrize(
    ("name", "nvlink", "pcie", "nic"),
    [
        ("dgx-a100", 234e9, 25e9, 24.25e9),
        ("dgx-h100", 369e9, 55e9, 48.5e9),
        ("hgx-h100-96gb", 369e9, 55e9, 48.5e9),
    ],
)
def test_what_links_reach(name: str, nvlink: float, pcie: float, nic: float) -> None:
    cluster = build(find_topology(name), nodes=2)
    rates = {link.kind: link.bytes_per_s for link in cluster.links}
    found = rates["nvlink"], rates["pcie"], rates["nic"]
    assert found == pytest.approx((nvlink, pcie, nic))


@pytest.mark.parametrize("name", topology_names())
def test_every_section_of_a_packaged_file_names_its_source(name: str) -> None:
    written = plain(read_map(find_topology(name).path, Mistakes()))
    assert written["source"]
    for key, section in written.items():
        if isinstance(section, dict):
            assert section["source"], key


def test_prices_are_read_with_their_dates() -> None:
    price = find_topology("aws-p5").price
    assert price is not None
    assert (price.usd_per_hour, price.as_of) == (55.04, "2026-07-20")
    assert find_topology("dgx-h100").price is None


@pytest.mark.parametrize(
    ("name", "gpu_name", "nics", "nic"),
    [
        ("aws-p4d", "a100-sxm-40gb", 4, 12.125e9),
        ("aws-p5", "h100-sxm-80gb", 32, 12.125e9),
        ("aws-p5en", "h200-sxm-141gb", 16, 24.25e9),
        ("gcp-a3-highgpu-8g", "h100-sxm-80gb", 4, 17.75e9),
        ("gcp-a2-highgpu-8g", "a100-sxm-40gb", 1, 10.625e9),
        ("oci-bm.gpu.h100.8", "h100-sxm-80gb", 16, 24.25e9),
        ("azure-nd-mi300x-v5", "mi300x-192gb", 8, 48.5e9),
    ],
)
def test_cloud_instances(name: str, gpu_name: str, nics: int, nic: float) -> None:
    cluster = build(find_topology(name), nodes=2)
    assert (cluster.devices[0].gpu.name, cluster.nics(0)) == (gpu_name, nics)
    assert {link.bytes_per_s for link in cluster.links if link.kind == "nic"} == {nic}


def test_a_rack_is_one_domain() -> None:
    cluster = build(find_topology("gb200-nvl72"), nodes=36)
    inside, outside = vertices(cluster, cluster.route(1, 71), cluster.route(1, 72 + 5, rail=1))
    assert inside == ["node0/gpu1", "domain0/nvswitch", "node17/gpu3"]
    assert outside[:4] == ["node0/gpu1", "node0/cpu0", "node0/nic1", "unit0/leaf1"]
    assert outside[-3:] == ["node19/nic1", "node19/cpu0", "node19/gpu1"]
    assert cluster.bisection_bytes_per_s == pytest.approx(18 * 4 * 48.5e9)


def test_without_peer_to_peer_all_goes_through_the_hosts_memory() -> None:
    cluster = build(find_topology("rtx4090-2"))
    (path,) = vertices(cluster, cluster.route(0, 1))
    there = ["node0/gpu0", "node0/pcie0", "node0/cpu0", "node0/host"]
    assert path == [*there, "node0/cpu0", "node0/pcie1", "node0/gpu1"]
    direct = build(find_topology("l40s-8"))
    assert vertices(direct, direct.route(0, 1)) == [["node0/gpu0", "node0/pcie0", "node0/gpu1"]]
    bridged = build(find_topology("rtx3090-2-nvlink"))
    assert vertices(bridged, bridged.route(0, 1)) == [["node0/gpu0", "node0/gpu1"]]


def test_nodes_without_a_network_stand_alone() -> None:
    with pytest.raises(UserError, match=r"cluster\.nodes: is 2; .*-2 have no network"):
        build(find_topology("rtx4090-2"), nodes=2)


def test_a_file_says_only_what_differs(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(packaged("dgx-h100"))
    (tmp_path / "mine.yaml").write_text("extends: base\nnode: {nics: 16}\nhost_memory: null\n")
    spec = find_topology("mine", tmp_path)
    assert (build(spec, 2).nics(0), spec.gpu, spec.host_bytes) == (16, "h100-sxm-80gb", 0)
    base.write_text(packaged("dgx-h100").replace("gpu: h100-sxm-80gb", "gpu: h200-sxm-141gb"))
    os.utime(base, ns=(1, 1))
    assert find_topology("mine", tmp_path).gpu == "h200-sxm-141gb"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: mine", "extends: comes back to itself: mine"),
        ("extends: [a]", "extends: is .* must be the name of a topology"),
        ("extends: nowhere", "unknown topology 'nowhere'"),
        ("extends: dgx-h100\nnode: {nisc: 4}", "node.nisc: unknown key; did you mean 'nics'"),
        ("extends: dgx-h100\nprice: {as_of: today}", "price.usd_per_hour: is missing"),
    ],
)
def test_mistakes_in_a_file_that_extends(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        find_topology("mine", tmp_path)


def test_routes_of_two_units_of_dgx_h100() -> None:
    cluster = build(find_topology("dgx-h100"), nodes=64)
    inside, same_unit, over_spine, other_rail = vertices(
        cluster,
        cluster.route(1, 5),
        cluster.route(1, 8 + 1),
        cluster.route(1, 8 * 40 + 1),
        cluster.route(1, 8 + 1, rail=5),
    )
    assert inside == ["node0/gpu1", "node0/nvswitch", "node0/gpu5"]
    half = ["node0/gpu1", "node0/pcie1", "node0/nic1", "unit0/leaf1"]
    assert same_unit == [*half, "node1/nic1", "node1/pcie1", "node1/gpu1"]
    there = ["spine8", "unit1/leaf1", "node40/nic1", "node40/pcie1", "node40/gpu1"]
    assert over_spine == half + there
    assert other_rail[:4] == ["node0/gpu1", "node0/nvswitch", "node0/gpu5", "node0/pcie5"]
    assert other_rail[-3:] == ["node1/gpu5", "node1/nvswitch", "node1/gpu1"]


def test_two_gpus_of_a_dgx_a100_share_a_pcie_switch() -> None:
    cluster = build(find_topology("dgx-a100"))
    first, second = cluster.to_host(0), cluster.to_host(1)
    assert first[1:] == second[1:]
    assert len({cluster.to_host(gpu)[1] for gpu in range(8)}) == 4


def test_spines_are_shared_evenly_by_a_shift_of_one_unit() -> None:
    cluster = build(find_topology("dgx-h100"), nodes=64)
    routes = [cluster.route(8 * node, 8 * (node + 32)) for node in range(32)]
    used = [link for route in routes for link in route if cluster.links[link].kind == "fabric"]
    assert {used.count(link) for link in used} == {2}


@pytest.mark.parametrize(("nics", "rails"), [(4, [0, 0, 1, 1, 2, 2, 3, 3]), (16, range(0, 16, 2))])
def test_nics_shared_and_many(tmp_path: Path, nics: int, rails: list[int]) -> None:
    text = packaged("dgx-a100").replace("nics: 8", f"nics: {nics}")
    (tmp_path / "mine.yaml").write_text(text)
    cluster = build(find_topology("mine", tmp_path), nodes=2)
    assert cluster.nics(0) == nics
    for local, rail in enumerate(rails):
        (path,) = vertices(cluster, cluster.route(local, 8 + local))
        assert path[1:3] == [f"node0/pcie{local // 2}", f"node0/nic{rail}"]
        for other in range(nics):
            assert f"node1/nic{other}" in vertices(cluster, cluster.route(local, 15, other))[0]


def test_fewer_gpus_than_there_are() -> None:
    cluster = build(find_topology("dgx-a100"), nodes=2, gpus_per_node=3)
    assert (len(cluster.devices), cluster.nics(1)) == (6, 3)
    assert cluster.devices[4].name == "node1/gpu1"


def test_another_gpu() -> None:
    cluster = build(find_topology("dgx-h100"), gpu=gpu("h200-sxm-141gb"))
    assert {device.gpu.name for device in cluster.devices} == {"h200-sxm-141gb"}


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 8), (-1, 8), (1, 9), (1, 0), (10**9, 8)])
def test_a_cluster_that_cannot_be(nodes: int, gpus: int) -> None:
    with pytest.raises(UserError, match=r"cluster\.(nodes|gpus_per_node): is"):
        build(find_topology("dgx-h100"), nodes, gpus)


def test_no_such_device_or_rail() -> None:
    cluster = build(find_topology("dgx-h100"), 2)
    for source, target, rail in [(0, 16, None), (-1, 0, None), (0, 8, 8), (0, 8, -1)]:
        with pytest.raises(IndexError):
            cluster.route(source, target, rail)


def test_large_clusters_are_cheap() -> None:
    spec = find_topology("dgx-h100")
    start = time.process_time()
    cluster = build(spec, nodes=2048)
    cluster.route(0, 16_383)
    assert sum(cluster.capacities) > 0
    assert time.process_time() - start < 1.0
    assert len(cluster.devices) == 16_384


def test_one_file_adds_a_gpu_and_one_a_topology(tmp_path: Path) -> None:
    (tmp_path / "x1.yaml").write_text(GPU)
    text = packaged("dgx-h100").replace("h100-sxm-80gb", "x1").replace("gpus: 8", "gpus: 4")
    (tmp_path / "quad.yaml").write_text(text.replace("nics: 8", "nics: 4"))
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("")
    spec = find_topology("quad", scenario)
    cluster = build(spec, nodes=3)
    assert (spec.gpu, spec.gpus_per_node, len(cluster.devices)) == ("x1", 4, 12)
    assert replace(cluster.devices[11].gpu, host_bytes_per_s=0.0) == gpu("x1", tmp_path)
    assert cluster.devices[0].gpu.power_watts == 600


def test_a_file_by_its_path_and_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "x2.yaml").write_text(GPU)
    (tmp_path / "t.yaml").write_text(packaged("dgx-h100").replace("h100-sxm-80gb", "x2"))
    assert find_topology(str(tmp_path / "t.yaml")).gpu_facts.sms == 100
    assert gpu("gpus/x2.yaml", tmp_path).sms == 100
    assert gpu("x2", tmp_path).sms == 100


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "x3.yaml"
    file.write_text(GPU)
    assert gpu("x3", tmp_path).sms == 100
    file.write_text(GPU.replace("sms: 100", "sms: 99"))
    os.utime(file, ns=(1, 1))
    assert gpu("x3", tmp_path).sms == 99


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU 'h100-sxm-80g'; did you mean 'h100-"):
        gpu("h100-sxm-80g")
    with pytest.raises(UnknownNameError, match="unknown topology 'dgx-h10'; did you mean 'dgx-"):
        find_topology("dgx-h10")
    with pytest.raises(UserError, match="no topology file nowhere/x"):
        find_topology("nowhere/x.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "sms: 100",
            "smz: 100",
            r":2:1: sms: is missing.*\n.*:6:1: smz: .*mean 'sms'",
        ),
        ("sms: 100", "sms: 100\nsmz: 1", r"smz: unknown key; did you mean 'sms'\?"),
        ("sms: 100", "sms: 1.5", "sms: is 1.5; it must be a whole number"),
        ("sms: 100", "sms: true", "sms: is True; it must be a whole number"),
        ("sms: 100", "sms: 0", "sms: is 0; it must be a whole number"),
        ("79 GiB", "79", "usable: 79 is no size; write a number and a unit"),
        ("79 GiB", "79 G", "usable: '79 G' is no size.*GB.*GiB"),
        ("79 GiB", "0 GiB", "usable: is '0 GiB'; it must be more than 0"),
        (
            "{bf16: 900 TFLOP/s}",
            "{bf61: 900 TFLOP/s}",
            "peaks.bf61: unknown key; .*'bf16'",
        ),
        ("{bf16: 900 TFLOP/s}", "{fp32: 9 TFLOP/s}", "peaks.bf16: is missing"),
        ("{bf16: 900 TFLOP/s}", "900 TFLOP/s", "peaks: is '900 TFLOP/s'; it must be a map"),
        ("source: a test", "source:", "source: is missing; it must be text"),
        ("sms: 100", "sms: 100\nsms: 101", ":7:1: duplicate key 'sms', first on line 6"),
        ("sms: 100", "sms: [", ":8:7: is no YAML: .*expected"),
        ("sms: 100", "sms: !!python/name:os.system x", ":6:6: sms: the tag .* not allowed"),
        ("sms: 100", "? [a]\n: 1", "a key must be a single word"),
        ("sms: 100", "sms: &a [*a]", "names no anchor that is complete"),
        (GPU, "[1, 2]", ":1:1: expected a map of keys to values"),
        (GPU, "", "is empty"),
        (GPU, "# nothing", "is empty"),
        (GPU, "[" * 3000, "is nested more than 50 deep"),
    ],
)
def test_mistakes_in_a_gpu_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(GPU.replace(old, new))
    with pytest.raises(UserError, match=message) as error:
        gpu("x", tmp_path)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rail_optimised", "rail_optimized", "builder: unknown builder .* mean 'rail_optimised'"),
        ("gpu: h100-sxm-80gb", "gpu: h100", "unknown GPU 'h100'"),
        ("efficiency: 0.82", "efficiency: 82", "nvlink.efficiency: is 82; .* at most 1"),
        ("nics: 8", "nics: 3", "node.nics: 3 NICs don't divide over 8 GPUs"),
        ("nics: 8", "nics: 0", "network: is 'ib-ndr', and a node has 0 NICs"),
        ("network: ib-ndr", "network: none", "network: is 'none', and a node has 8 NICs"),
        ("builder: rail_optimised", "builder: nvlink_domain", "domain: is missing"),
        ("builder: rail_optimised", "builder: mesh", "xgmi: is missing"),
        ("builder: rail_optimised", "builder: pcie", "peer_to_peer: is missing; .* true or false"),
        ("400 Gbit/s", "400 Gb", "nic.rate: '400 Gb' is no data rate.*bit/s"),
        (
            "spines: 16",
            "spine: 16",
            r"spines: is missing;.*\n.*fabric.spine: .*'spines'",
        ),
        ("oversubscription: 1.0", "oversubscription: 0", "fabric.oversubscription: is 0;"),
        ("nvlink:", "nvlnik:", r"nvlink: is missing; .* a map\n.*nvlnik: unknown key; .*'nvlink'"),
    ],
)
def test_mistakes_in_a_topology_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "t.yaml").write_text(packaged("dgx-h100").replace(old, new))
    with pytest.raises(UserError, match=message):
        find_topology("t", tmp_path)


MANY = """\
extends: base
gpu: h100
network: inf
host_memory: 2 TB
node: {gpus: 8.5, nisc: 8}
nvlink: {rate: 450, efficiency: 2, source: yours}
on: true
"""


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """Each with the file it stands in, its line and column, what was found, what is allowed."""
    base, mine = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_text(packaged("dgx-h100").replace("gpus_per_pcie_switch: 1", "gpus_per_switch: 1"))
    mine.write_text(MANY)
    with pytest.raises(ScenarioError) as error:
        find_topology("mine", tmp_path)
    found = [(Path(each.source).name, each.line, each.key) for each in error.value.mistakes]
    assert sorted(found) == [
        ("base.yaml", _line(base, "gpus_per_switch"), "node.gpus_per_switch"),
        ("mine.yaml", 3, "network"),
        ("mine.yaml", 5, "node.gpus"),
        ("mine.yaml", 5, "node.gpus_per_pcie_switch"),
        ("mine.yaml", 5, "node.nisc"),
        ("mine.yaml", 6, "nvlink.efficiency"),
        ("mine.yaml", 6, "nvlink.rate"),
        ("mine.yaml", 7, "on"),
    ]
    text = str(error.value)
    assert "mine.yaml:5:14: node.gpus: is 8.5; it must be a whole number from 1 to 4096" in text
    assert "mine.yaml:5:19: node.nisc: unknown key; did you mean 'nics'?" in text
    assert "mine.yaml:3:10: network: unknown network 'inf'" in text


def _line(path: Path, word: str) -> int:
    lines = path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if word in line)


def test_mistakes_of_a_topology_stand_beside_those_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MANY.replace("base", "dgx-h100"))
    scenario = tmp_path / "job.yaml"
    scenario.write_text("model: llama-2-7\ncluster: {topology: mine}\n")
    with pytest.raises(ScenarioError) as error:
        load(scenario)
    places = [(Path(each.source).name, each.key) for each in error.value.mistakes]
    assert ("job.yaml", "model.preset") in places or ("job.yaml", "model") in places
    assert ("mine.yaml", "nvlink.rate") in places


def test_a_gpu_that_is_not_there_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: dgx-h100\ngpu: h100-sxm-80g\n")
    with pytest.raises(ScenarioError, match=r"mine.yaml:2:6: gpu: unknown GPU .* 'h100-sxm-80gb'"):
        find_topology("mine", tmp_path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        gpu("x", tmp_path)
    (tmp_path / "y.yaml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(UserError, match="is too large for a data file: 1,048,577 bytes"):
        gpu("y", tmp_path)


@pytest.mark.parametrize(
    ("changed", "to", "says"),
    [
        ("network: ib-ndr", "network: ib-nrd", "did you mean 'ib-ndr'?"),
        ("rate: 450 GB/s", "rate: 0.0000000001 GB/s", "at least 1 B/s"),
    ],
)
def test_networks_are_known_and_links_carry_something(
    tmp_path: Path, changed: str, to: str, says: str
) -> None:
    text = find_topology("dgx-h100").path.read_text()
    assert changed in text
    (tmp_path / "mine.yaml").write_text(text.replace(changed, to))
    with pytest.raises(UserError, match=says):
        find_topology("mine", tmp_path)
