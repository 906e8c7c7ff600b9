"""The part of a ring collective that holds no bandwidth: alpha + c·sqrt(S).

An all_reduce is a reduce_scatter and an all_gather: twice the steps and twice the bytes. With p
steps of latency a and b seconds per byte, the best chunking takes (sqrt(p·a) + sqrt(b·S))², so
c = 2·sqrt(p·a·b) doubles too. The constants and their sources are in ``data/collectives.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from simulator.hardware.cluster import Cluster
from simulator.timing.constants import constants
from simulator.timing.families import lender

Latency = tuple[float, float]
"""alpha in seconds, c in s/sqrt(byte)."""


def ring_latency(kind: str, found: Sequence[Sequence[int]], cluster: Cluster) -> Latency:
    """Of a ring through ``found``, the group's members by domain."""
    n = sum(len(domain) for domain in found)
    passes = 2 if kind == "all_reduce" else 1
    alpha, c = _in_domain(found[0], cluster)
    if len(found) == 1:
        measured: int = constants("collectives")["measured_members"]
        return alpha * max(1.0, n / measured) * 1e-6, c * passes / 2 * 1e-6
    network = _over_network(cluster.network)
    alpha += passes * network["step_us"] * (n - 1)
    return alpha * 1e-6, passes * network["c_us"] * 1e-6


def _in_domain(domain: Sequence[int], cluster: Cluster) -> Latency:
    """alpha and c in us of an all_reduce inside one domain."""
    known = constants("collectives")
    if _over_pcie(domain, cluster):
        return known["pcie"]["alpha_us"], known["pcie"]["c_us"]
    families = known["in_domain"]
    row = families[lender(cluster.devices[domain[0]].gpu.family, families)]
    return row["alpha_us"], row["c_us"]


def _over_pcie(domain: Sequence[int], cluster: Cluster) -> bool:
    routes = (cluster.route(source, target) for source, target in pairwise(domain))
    return any(cluster.links[link].kind == "pcie" for route in routes for link in route)


def _over_network(network: str) -> Any:
    """The row of its own name, else of its kind (``efa3``: ``efa``), else the default."""
    known = constants("collectives")["ring_over_network"]
    return known.get(network) or known.get(network.rstrip("0123456789")) or known["default"]
