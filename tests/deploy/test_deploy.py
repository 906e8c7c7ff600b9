import pytest

from simulator.deploy import SCALE, Traffic, deploy
from simulator.errors import ProgramError, UserError
from simulator.plan.mesh import Mesh
from tests.engine.worlds import (
    AR,
    Star,
    collective,
    fsdp,
    gpu,
    launch,
    program,
    ring,
)

GATHER = program((collective(800),))
HSDP = program((collective(800), collective(200, AR, "dp_replicate", "all_reduce")))
WHOLE = Mesh(sizes=(1, 1, 8, 1, 1))


def test_one_world_is_one_class():
    deployment = deploy(GATHER, Star(2, 4), WHOLE, choose=ring)
    assert deployment.class_of_rank == (0,) * 8
    assert deployment.classes[0].ranks == tuple(range(8))
    assert deployment.classes[0].groups == {"dp_shard": 0}
    assert deployment.groups[0].members == (0,)


def test_traffic_is_on_classes_of_links():
    """Rings of 4 inside the nodes: every NVLink carries 3/4, both ways, and no NIC anything."""
    mesh = Mesh(sizes=(1, 2, 4, 1, 1))
    deployment = deploy(GATHER, Star(2, 4), mesh, choose=ring)
    assert deployment.capacities == (4 * 10**9 * SCALE,)
    assert deployment.groups[0].traffic == {
        ("all_gather", 800): Traffic(latency_ns=4_000, weights=((0, SCALE * 3 // 4),))
    }


def test_groups_that_share_links_fold_to_the_sum_of_their_weights():
    """Two nodes of 2 with one NIC each: replicas (0 2) and (1 3) send half of S each over it."""
    along = program((collective(100, group="dp_replicate"),))
    cluster = Star(2, 2, one_nic=True)
    deployment = deploy(along, cluster, Mesh(sizes=(1, 2, 2, 1, 1)), choose=ring)
    (traffic,) = deployment.groups[0].traffic.values()
    assert traffic.weights == ((0, 2 * SCALE // 2),)
    assert len(deployment.groups) == 1


@pytest.mark.parametrize("sizes", [(1, 1, 8, 1, 1), (1, 8, 1, 1, 1)])
def test_the_short_way_for_one_world_finds_what_refinement_finds(monkeypatch, sizes):
    axis = "dp_shard" if sizes[2] == 8 else "dp_replicate"
    what = program((collective(800, group=axis), collective(64, group=axis, kind="all_reduce")))
    cluster = Star(2, 4, slow_links={9: 1e9})
    short = deploy(what, cluster, Mesh(sizes=sizes), choose=ring)
    monkeypatch.setattr("simulator.deploy.placement.one_world", lambda *_: pytest.fail("short way"))
    monkeypatch.setattr("simulator.deploy.placement._same_everywhere", lambda *_: False)
    assert deploy(what, cluster, Mesh(sizes=sizes), choose=ring) == short


def test_whole_nodes_are_alike():
    deployment = deploy(HSDP, Star(2, 4), Mesh(sizes=(1, 2, 4, 1, 1)), choose=ring)
    assert deployment.class_of_rank == (0,) * 8
    assert [group.axis for group in deployment.groups] == ["dp_replicate", "dp_shard"]


def test_a_slow_gpu_splits_those_that_meet_it():
    """It, its shard group, its replica, the replica's shard group."""
    cluster = Star(2, 4, gpus={1: gpu("slow", 0.5)})
    deployment = deploy(HSDP, cluster, Mesh(sizes=(1, 2, 4, 1, 1)), choose=ring)
    assert deployment.class_of_rank == (0, 1, 0, 0, 2, 3, 2, 2)


def test_a_slow_link_splits_the_groups_that_use_it():
    """Rank 5's NIC is slow: replicas (1 5) are unlike the other three pairs."""
    cluster = Star(2, 4, slow_links={4 * 5 + 2: 5e8})
    deployment = deploy(HSDP, cluster, Mesh(sizes=(1, 2, 4, 1, 1)), choose=ring)
    assert deployment.class_of_rank == (0, 1, 0, 0, 0, 1, 0, 0)


def test_equal_gpus_are_one_kind_though_not_one_object():
    cluster = Star(2, 4, gpus={rank: gpu() for rank in range(8)})
    assert deploy(GATHER, cluster, WHOLE, choose=ring).class_of_rank == (0,) * 8


def test_ranks_with_programs_of_their_own():
    head = program((launch(1), collective(800)))
    deployment = deploy(
        {r: head if r == 0 else GATHER for r in range(8)}, Star(2, 4), WHOLE, choose=ring
    )
    assert deployment.class_of_rank == (0, *[1] * 7)
    assert deployment.groups[0].members == (0, 1)


def test_unfolded_every_rank_is_a_class():
    deployment = deploy(HSDP, Star(2, 4), Mesh(sizes=(1, 2, 4, 1, 1)), False, ring)
    assert deployment.class_of_rank == tuple(range(8))
    assert len(deployment.groups) == 4 + 2
    assert deployment.classes[6].groups == {"dp_replicate": 2, "dp_shard": 5}


def test_no_communication_at_all():
    deployment = deploy(program((launch(1),)), Star(2, 4), WHOLE, choose=ring)
    assert (deployment.groups, deployment.capacities) == ((), ())
    assert deployment.class_of_rank == (0,) * 8


def test_too_few_gpus():
    with pytest.raises(UserError, match="16 ranks need 16 GPUs, and star has 8"):
        deploy(GATHER, Star(2, 4), Mesh(sizes=(1, 2, 8, 1, 1)), choose=ring)


def test_a_rank_without_a_program():
    with pytest.raises(ProgramError, match="no program for rank 1 of 8"):
        deploy({0: GATHER}, Star(2, 4), WHOLE, choose=ring)


def test_a_group_that_is_no_axis():
    with pytest.raises(ProgramError, match="'data', which is no axis"):
        deploy(program((collective(1, group="data"),)), Star(2, 4), WHOLE, choose=ring)


@pytest.mark.bench
@pytest.mark.parametrize("sizes", [(1, 1, 512, 1, 1), (1, 64, 8, 1, 1), (1, 8, 64, 1, 1)])
def test_512_ranks_fold_fast(benchmark, sizes):
    what = fsdp(80, steps=2, replicate="dp_replicate" if sizes[1] > 1 else None)
    cluster = Star(64, 8)
    benchmark(lambda: deploy(what, cluster, Mesh(sizes=sizes), choose=ring))
    assert benchmark.stats.stats.min < 0.1
