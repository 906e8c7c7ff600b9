"""How fast programs of known size play (seconds of one core)."""

import pytest

from simulator.deploy import deploy
from simulator.engine import Prices, play
from simulator.plan.mesh import Mesh
from tests.engine.worlds import Star, fsdp, prices, ring

PRICES = prices(host_launch_ns=4_000, host_collective_ns=10_000, overlap=Prices().overlap)


@pytest.mark.bench
@pytest.mark.parametrize(("layers", "limit"), [(32, 0.035), (80, 0.120)])
def test_two_steps(benchmark, layers, limit):
    deployment = deploy(fsdp(layers, steps=2), Star(1, 8), Mesh(sizes=(1, 1, 8, 1, 1)), choose=ring)
    benchmark(play, deployment, PRICES)
    assert benchmark.stats.stats.min < limit


@pytest.mark.bench
def test_every_rank_on_its_own(benchmark):
    deployment = deploy(fsdp(80, steps=2), Star(64, 8), Mesh(sizes=(1, 1, 512, 1, 1)), False, ring)
    benchmark.pedantic(play, (deployment, PRICES), rounds=1)
    assert benchmark.stats.stats.min < 30
