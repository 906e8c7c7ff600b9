"""The part of a collective that holds no bandwidth: alpha + c·sqrt(S).

An all_reduce is a reduce_scatter and an all_gather: twice the steps and twice the bytes. With p
steps of latency a and b seconds per byte, the best chunking takes (sqrt(p·a) + sqrt(b·S))², so
c = 2·sqrt(p·a·b) doubles too. The constants and their sources are in ``data/collectives.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

from simulator.hardware.cluster import Cluster
from simulator.timing.constants import constants
from simulator.timing.families import lender

Latency = tuple[float, float]
"""alpha in seconds, c in s/sqrt(byte)."""


def ring_latency(kind: str, found: Sequence[Sequence[int]], cluster: Cluster) -> Latency:
    """Of a ring through ``found``, the group's members by domain."""
    if len(found) == 1:
        return domain_latency(kind, found[0], cluster)
    n = sum(len(domain) for domain in found)
    passes = 2 if kind == "all_reduce" else 1
    network = _over_network(cluster.network)
    alpha = _in_domain(found[0], cluster)["alpha_us"] + passes * network["step_us"] * (n - 1)
    return alpha * 1e-6, passes * network["c_us"] * 1e-6


def domain_latency(kind: str, domain: Sequence[int], cluster: Cluster) -> Latency:
    """Of a ring inside one domain, as measured end to end with eight members.

    More members start later; fewer have a shorter pipeline to fill, so c goes with sqrt(p).
    """
    row = _in_domain(domain, cluster)
    passes = 2 if kind == "all_reduce" else 1
    measured: int = constants("collectives")["measured_members"]
    alpha = row["alpha_us"] * max(1.0, len(domain) / measured)
    c = row["c_us"] * min(1.0, sqrt((len(domain) - 1) / (measured - 1)))
    return alpha * 1e-6, c * passes / 2 * 1e-6


def direct_latency(found: Sequence[Sequence[int]], cluster: Cluster) -> Latency:
    """Of an exchange of every pair of ``found``, the group's members by domain.

    Over a network it starts no sooner than inside the largest domain.
    """
    known = constants("collectives")["direct"]
    largest = max(found, key=len)
    inside, between = known["in_domain"], known["over_network"]
    alpha = _in_domain(largest, cluster)["alpha_us"] * inside["alphas"] if len(largest) > 1 else 0.0
    if len(found) == 1:
        return alpha * 1e-6, inside["c_us"] * 1e-6
    n = sum(len(domain) for domain in found)
    alpha = max(alpha, between["alpha_us"] + between["peer_us"] * (n - 1))
    return alpha * 1e-6, between["c_us"] * 1e-6


def direct_reach(family: str) -> dict[str, float]:
    """By kind of link: what an exchange of every pair reaches of what a ring does."""
    known = constants("collectives")["direct"]
    inside = known["nvlink_reach"]
    return {
        "nvlink": inside[lender(family, inside)]["of_ring"],
        "nic": known["over_network"]["of_ring"],
    }


def _in_domain(domain: Sequence[int], cluster: Cluster) -> Any:
    """The row with alpha and c in us of an all_reduce inside one domain."""
    known = constants("collectives")
    slowest = _over_pcie(domain, cluster)
    if slowest is not None:
        fits = [row for row in known["pcie"] if slowest >= row["from_bytes_per_s"]]
        return fits[-1]
    families = known["in_domain"]
    return families[lender(cluster.devices[domain[0]].gpu.family, families)]


def _over_pcie(domain: Sequence[int], cluster: Cluster) -> float | None:
    """What the slowest PCIe link from member to member reaches; None where there is none."""
    routes = (cluster.route(source, target) for source, target in pairwise(domain))
    links = (cluster.links[link] for route in routes for link in route)
    return min((link.bytes_per_s for link in links if link.kind == "pcie"), default=None)


def _over_network(network: str) -> Any:
    """The row of its own name, else of its kind (``efa3``: ``efa``), else the default."""
    known = constants("collectives")["ring_over_network"]
    return known.get(network) or known.get(network.rstrip("0123456789")) or known["default"]
