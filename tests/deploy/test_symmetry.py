"""Looking at one of each finds what refinement of all finds, on every shape of cluster and mesh."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from time import process_time

import pytest

from simulator.deploy import Deployment, deploy
from simulator.deploy.symmetry import NONE, find_symmetry
from simulator.hardware.cluster import Cluster, Turning
from simulator.hardware.topologies import build, find_topology
from simulator.plan.mesh import Mesh
from simulator.program.program import Program
from simulator.timing.collectives import Pattern, choose
from tests.engine.worlds import AG, AR, RS, collective, launch, program

SMALL = {
    "rails": ("dgx-h100", "gpus: 4, nics: 4", ""),
    "shared NICs": ("dgx-a100", "gpus: 4, nics: 2", ""),
    "rack": ("gb200-nvl72", "gpus: 4, nics: 4", "domain: {nodes: 2, source: tests}"),
    "mesh": ("mi300x-8", "gpus: 4, nics: 4", ""),
    "pcie": ("aws-g5.48xlarge", "gpus: 4, nics: 1", ""),
}
"""Base, a node of four, and what else differs: units of two nodes and three spines each."""

MESHES = [
    *[(1, 1, 32, 1, 1), (1, 2, 16, 1, 1), (1, 16, 2, 1, 1), (1, 4, 8, 1, 1), (1, 8, 4, 1, 1)],
    *[(1, 1, 16, 1, 2), (2, 1, 4, 1, 4), (4, 1, 2, 2, 2), (2, 2, 2, 1, 4), (1, 1, 4, 1, 8)],
    *[(8, 1, 2, 1, 2), (1, 1, 24, 1, 1), (3, 1, 2, 1, 4), (1, 1, 1, 1, 32), (1, 3, 8, 1, 1)],
]


@pytest.fixture(params=SMALL)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    base, node, more = SMALL[request.param]
    fabric = "fabric: {unit_nodes: 2, spines: 3, source: tests}"
    text = f"extends: {base}\nnode: {{{node}, source: tests}}\n{fabric}\n{more}\n"
    (tmp_path / "small.yaml").write_text(text)
    return build(find_topology("small", tmp_path), nodes=8)


def issues(*axes: str, first: int = 64) -> Program:
    """Collectives of three kinds along each of ``axes``."""
    streams = {"all_gather": AG, "reduce_scatter": RS, "all_reduce": AR}
    return program(
        (
            launch(first),
            *(
                collective(1 << 20, stream, axis, kind)
                for axis in axes
                for kind, stream in streams.items()
            ),
        )
    )


def both_ways(
    monkeypatch: pytest.MonkeyPatch,
    what: Program | dict[int, Program],
    cluster: Cluster,
    mesh: Mesh,
) -> tuple[Deployment, Deployment]:
    short = deploy(what, cluster, mesh)
    with monkeypatch.context() as patch:
        patch.setattr("simulator.deploy.placement.find_symmetry", lambda *_: NONE)
        patch.setattr("simulator.deploy.placement._same_everywhere", lambda *_: False)
        return short, deploy(what, cluster, mesh)


def used(mesh: Mesh) -> list[str]:
    return [axis for axis, size in zip(mesh.axes, mesh.sizes, strict=True) if size > 1]


@pytest.mark.parametrize("sizes", MESHES)
def test_the_short_way_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, sizes: tuple[int, ...]
) -> None:
    mesh = Mesh(sizes=sizes)
    axes = [axis for axis in used(mesh) if axis != "pp"]
    short, whole = both_ways(monkeypatch, issues(*axes), cluster, mesh)
    assert short == whole


@pytest.mark.parametrize("sizes", [size for size in MESHES if size[0] > 1])
def test_with_a_program_a_stage(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, sizes: tuple[int, ...]
) -> None:
    mesh = Mesh(sizes=sizes)
    axes = [axis for axis in used(mesh) if axis != "pp"]
    stages = [issues(*axes, first=stage + 1) for stage in range(sizes[0])]
    what = {rank: stages[rank // mesh.stride("pp")] for rank in range(mesh.world_size)}
    short, whole = both_ways(monkeypatch, what, cluster, mesh)
    assert short == whole
    assert len(short.classes) >= sizes[0]


@pytest.mark.parametrize("odd", [0, 13, 31])
def test_one_rank_that_is_unlike_the_others(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, odd: int
) -> None:
    usual, other = issues("dp_shard", "tp"), issues("dp_shard", "tp", first=1)
    what = {rank: other if rank == odd else usual for rank in range(32)}
    short, whole = both_ways(monkeypatch, what, cluster, Mesh(sizes=(1, 1, 16, 1, 2)))
    assert short == whole


def test_there_is_a_symmetry_to_use(cluster: Cluster) -> None:
    for sizes, axis in product(MESHES[:4], ["dp_shard"]):
        assert find_symmetry(cluster, Mesh(sizes=sizes), [axis], [0] * 32).turns


def test_traffic_that_is_less_symmetric_than_its_members(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    """An algorithm that loads the first node alone: every rank is looked at."""

    def lopsided(kind: str, size: int, members: tuple[int, ...], where: Cluster) -> Pattern:
        pattern = choose(kind, size, members, where)
        link, load = next(iter(pattern.loads.items()))
        return replace(pattern, loads={**pattern.loads, link: 2 * load})

    mesh = Mesh(sizes=(1, 2, 16, 1, 1))
    short = deploy(issues("dp_shard"), cluster, mesh, choose=lopsided)
    with monkeypatch.context() as patch:
        patch.setattr("simulator.deploy.placement.find_symmetry", lambda *_: NONE)
        assert deploy(issues("dp_shard"), cluster, mesh, choose=lopsided) == short


def test_turns_map_links_to_like_links(cluster: Cluster) -> None:
    assert isinstance(cluster, Turning)
    turn = cluster.turn_nodes
    first = cluster.first_alike([(turn, 8)])
    for index, link in enumerate(cluster.links):
        like = cluster.links[first(index)]
        assert first(index) <= index
        assert first(first(index)) == first(index)
        assert (like.kind, like.bytes_per_s) == (link.kind, link.bytes_per_s)


@pytest.mark.bench
@pytest.mark.parametrize(
    "sizes", [(1, 1, 16384, 1, 1), (1, 2048, 8, 1, 1), (1, 8, 2048, 1, 1), (16, 1, 128, 1, 8)]
)
def test_16384_ranks_fold_fast(sizes: tuple[int, ...]) -> None:
    """0.1 to 0.35 s on an idle core."""
    cluster, mesh = build(find_topology("dgx-h100"), nodes=2048), Mesh(sizes=sizes)
    what = issues(*[axis for axis in used(mesh) if axis != "pp"])
    start = process_time()
    deployment = deploy(what, cluster, mesh)
    assert process_time() - start < 1.0
    assert len(deployment.class_of_rank) == 16384
    assert len(deployment.classes) <= 2
