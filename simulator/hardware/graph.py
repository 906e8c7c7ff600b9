"""A cluster as a networkx graph: to check routes by, and for what needs a graph library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.hardware.cluster import Cluster, vertex_kind

if TYPE_CHECKING:
    import networkx as nx


def graph(cluster: Cluster) -> nx.DiGraph[str]:
    """A directed graph of the vertices' names.

    Vertices carry ``kind``; edges ``link`` (the index in ``cluster.links``), ``kind``,
    ``capacity`` in bytes/s and ``latency`` in seconds.
    """
    import networkx as nx

    found: nx.DiGraph[str] = nx.DiGraph(name=cluster.name)
    for index, link in enumerate(cluster.links):
        found.add_edge(
            link.source,
            link.target,
            link=index,
            kind=link.kind,
            capacity=link.bytes_per_s,
            latency=link.latency_s,
        )
    for vertex in found:
        found.nodes[vertex]["kind"] = vertex_kind(vertex)
    return found
