"""Rings on a mesh share no link."""

from __future__ import annotations

import pytest

from simulator.timing.collectives.cycles import cycles


@pytest.mark.parametrize("n", range(1, 17))
def test_each_visits_all_and_no_two_share_a_link(n: int) -> None:
    found = cycles(n)
    assert all(sorted(way) == list(range(n)) for way in found)
    links = [(a, b) for way in found for a, b in zip(way, way[1:] + way[:1], strict=True)]
    assert len(set(links)) == len(links)


@pytest.mark.parametrize("n", [2, 3, 5, 7, 8, 11, 13])
def test_eight_and_primes_use_every_link(n: int) -> None:
    assert len(cycles(n)) == n - 1
