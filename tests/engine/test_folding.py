"""Folded and unfolded runs are the same run (I14), to the ns."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deploy import deploy
from simulator.engine import Prices, play
from simulator.plan.mesh import Mesh
from tests.engine.strategies import programs
from tests.engine.worlds import Star, fsdp, gpu, prices, ring, rows

WORLDS = st.sampled_from(
    [(1, 2, 1, 2), (2, 2, 2, 2), (2, 2, 4, 1), (2, 4, 2, 4), (2, 4, 4, 2), (4, 2, 2, 4),
     (2, 8, 2, 8), (2, 8, 8, 2), (4, 4, 4, 4), (2, 3, 2, 3), (3, 4, 2, 6)]
)  # fmt: skip
COSTLY = {
    "host_launch_ns": 15,
    "host_collective_ns": 20,
    "host_event_ns": 1,
    "overlap": Prices().overlap,
}


@st.composite
def clusters(draw):
    """A star and a mesh on it, with some links or GPUs slower than the rest."""
    nodes, per_node, replicate, shard = draw(WORLDS)
    world = nodes * per_node
    slow_links = draw(
        st.dictionaries(st.integers(0, 4 * world - 1), st.sampled_from([3e8, 7e8]), max_size=2)
    )
    slow_gpus = draw(
        st.dictionaries(st.integers(0, world - 1), st.sampled_from([0.5, 2.0]), max_size=2)
    )
    gpus = {rank: gpu(f"odd{speed}", speed) for rank, speed in slow_gpus.items()}
    one_nic = draw(st.booleans())
    cluster = Star(nodes, per_node, one_nic=one_nic, slow_links=slow_links, gpus=gpus)
    return cluster, Mesh(sizes=(1, replicate, shard, 1, 1))


def assert_same(program, cluster, mesh):
    folded, unfolded = (
        play(deploy(program, cluster, mesh, fold, ring), prices(**COSTLY)) for fold in (True, False)
    )
    assert unfolded.class_of_rank == tuple(range(mesh.world_size))
    for rank, index in enumerate(folded.class_of_rank):
        assert rows(folded, rank) == rows(unfolded, rank)
        for column in ("host_start", "host_end", "compute_start", "compute_end"):
            mine, theirs = (
                getattr(folded.calls[index], column),
                getattr(unfolded.calls[rank], column),
            )
            assert np.array_equal(mine, theirs)
    return folded, unfolded


@given(programs(axes=("dp_shard", "dp_replicate"), sizes=(0, 300, 5_000)), clusters())
def test_random_programs_on_whole_and_broken_clusters(program, world):
    assert_same(program, *world)


@pytest.mark.parametrize("sizes", [(1, 2, 8, 1, 1), (1, 8, 2, 1, 1), (1, 4, 4, 1, 1)])
def test_hsdp(sizes):
    program = fsdp(3, steps=2, replicate="dp_replicate")
    folded, unfolded = assert_same(program, Star(2, 8), Mesh(sizes=sizes))
    assert folded.counts.classes <= 2 < unfolded.counts.classes == 16


def test_a_slow_gpu_holds_up_its_group_and_the_trace_says_whom():
    cluster = Star(2, 4, gpus={5: gpu("slow", 0.5)})
    folded, _ = assert_same(fsdp(3), cluster, Mesh(sizes=(1, 1, 8, 1, 1)))
    assert folded.class_of_rank == (0, 0, 0, 0, 0, 1, 0, 0)


def test_a_slow_link_slows_all_that_use_it_and_keeps_them_one_class():
    mesh = Mesh(sizes=(1, 1, 8, 1, 1))
    whole, _ = assert_same(fsdp(3), Star(2, 4), mesh)
    slow, _ = assert_same(fsdp(3), Star(2, 4, slow_links={14: 2e8}), mesh)
    assert slow.counts.classes == 1
    assert slow.spans.end.max() > whole.spans.end.max()


def test_twice_the_same():
    deployment = deploy(
        fsdp(3, replicate="dp_replicate"), Star(2, 8), Mesh(sizes=(1, 4, 4, 1, 1)), choose=ring
    )
    once, again = (play(deployment, prices(**COSTLY)) for _ in range(2))
    assert rows(once) == rows(again)
    assert once.counts == again.counts


PRINT = """
from tests.engine.test_folding import *
deployment = deploy(fsdp(2, replicate="dp_replicate"), Star(2, 4, gpus={3: gpu("slow", 0.5)}),
                    Mesh(sizes=(1, 4, 2, 1, 1)), choose=ring)
timeline = play(deployment, prices(**COSTLY))
print(timeline.counts, [rows(timeline, rank) for rank in range(8)], timeline.spans.names)
"""


def test_the_same_in_every_process():
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1
