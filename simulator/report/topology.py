"""A cluster as words; ``draw_topology`` gives the picture."""

from __future__ import annotations

from collections import Counter

from simulator.hardware.cluster import Cluster, Link, vertex_kind
from simulator.report.table import Section, lines
from simulator.report.topology_plot import draw_topology
from simulator.report.vertices import WORDS, counted, gpu_facts
from simulator.units import format_bytes, format_rate, format_time

__all__ = ["describe_topology", "draw_topology"]

Kind = tuple[str, str, str, float, float]
"""Of links: kind, kinds of both ends, bytes/s, seconds."""


_UNUSED = (
    "No answer depends yet on latencies: what a collective costs before it moves bytes is measured "
    "end to end, and no plan sends from one rank to another. Copies from and to host memory are "
    "timed while all GPUs of a node copy."
)


def describe_topology(cluster: Cluster, width: int = 100) -> str:
    """What a cluster is made of, what each kind of link reaches, and its bisection, as text."""
    parts = Section(
        title=f"{cluster.name}: {counted(len(cluster.devices), 'gpu')}",
        align="ll",
        rows=tuple(_parts(cluster)),
    )
    links = Section(
        title="Links",
        headers=("kind", "between", "each direction", "latency", "number", "all together"),
        align="llrrrr",
        rows=tuple(_link_rows(cluster)),
        notes=(*_bisection(cluster), _UNUSED),
    )
    return "\n\n".join("\n".join(lines(section, width)) for section in (parts, links))


def _parts(cluster: Cluster) -> list[tuple[str, str]]:
    vertices = Counter(vertex_kind(v) for v in {link.source for link in cluster.links})
    nodes, gpu = cluster.devices[-1].node + 1, cluster.devices[0].gpu
    inside = [kind for kind in ("gpu", "nic", "pcie", "cpu") if vertices[kind]]
    each = [counted(vertices[kind] // nodes, kind) for kind in inside]
    if cluster.host_bytes:
        each.append(f"{format_bytes(cluster.host_bytes, decimals=None)} of host memory")
    rows = [
        ("nodes", f"{nodes:,}, each with {', '.join(each)}"),
        ("GPU", ", ".join([gpu.name, *gpu_facts(gpu)])),
    ]
    rows += [("host copies", f"{format_rate(gpu.host_bytes_per_s, 3)} each way for each GPU")]
    switches = vertices["nvswitch"]
    if 0 < switches < nodes:
        most = sum(link.target == "domain0/nvswitch" for link in cluster.links)
        rows += [("NVLink", f"{counted(switches, 'nvswitch')}, each for {counted(most, 'gpu')}")]
    tiers = [counted(vertices[kind], kind) for kind in ("leaf", "spine") if vertices[kind]]
    return [*rows, ("network", ", ".join([cluster.network, *tiers]))] if tiers else rows


def _link_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """A row for each kind of link between two kinds of vertex, one direction counted."""
    counts = Counter(map(_kind, cluster.links))
    rows: dict[Kind, tuple[str, ...]] = {}
    for (kind, a, b, rate, latency), count in counts.items():
        if (kind, b, a, rate, latency) not in rows:
            rows[kind, a, b, rate, latency] = (
                kind,
                f"{WORDS[a][0]} – {WORDS[b][0]}",
                format_rate(rate, 3),
                format_time(latency, 2),
                f"{count:,}",
                format_rate(rate * count, 3),
            )
    return list(rows.values())


def _kind(link: Link) -> Kind:
    ends = vertex_kind(link.source), vertex_kind(link.target)
    return (link.kind, *ends, link.bytes_per_s, link.latency_s)


def _bisection(cluster: Cluster) -> tuple[str, ...]:
    total = cluster.bisection_bytes_per_s
    if not total:
        return ()
    each = format_rate(2 * total / len(cluster.devices), 3)
    return (
        f"Bisection: {format_rate(total, 4)} from half to half, {each} for each GPU of a half.",
    )
