"""A cluster as words and as a picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.dtypes import DType
from simulator.hardware.cluster import Cluster, Link, vertex_kind
from simulator.hardware.gpu import Gpu
from simulator.report.figure import house_style, new_figure, save
from simulator.report.palette import INK, QUIET
from simulator.report.table import Section, lines
from simulator.report.topology_scene import FILLS, KIND_COLOURS, Scene, scene_of
from simulator.report.vertices import WORDS, counted
from simulator.units import format_bytes, format_flops, format_rate, format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def describe_topology(cluster: Cluster, width: int = 100) -> str:
    """What a cluster is made of, what each kind of link reaches, and its bisection, as text."""
    vertices = Counter(vertex_kind(v) for v in {link.source for link in cluster.links})
    nodes = cluster.devices[-1].node + 1
    sections = [
        Section(title=_title(cluster), align="ll", rows=tuple(_parts(cluster, vertices, nodes))),
        Section(
            title="Links",
            headers=("kind", "between", "each direction", "latency", "number", "all together"),
            align="llrrrr",
            rows=tuple(_link_rows(cluster)),
            notes=_bisection(cluster),
        ),
    ]
    return "\n\n".join("\n".join(lines(section, width)) for section in sections)


def draw_topology(cluster: Cluster, path: str | Path) -> None:
    """Draw one node, its rails and a summary of all others; the suffix of ``path`` picks the kind.

    Equal clusters give equal bytes.
    """
    scene = scene_of(cluster)
    with house_style():
        figure = new_figure()
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0, 160), ylim=(0, 90))
        axes.axis("off")
        _draw(axes, scene)
        axes.text(5, 83.5, cluster.name, fontsize=22, fontweight="bold", color=INK, va="center")
        axes.text(5, 79, "  ·  ".join(_facts(cluster)), fontsize=12, color=QUIET, va="center")
        save(figure, path)


def _title(cluster: Cluster) -> str:
    return f"{cluster.name}: {counted(len(cluster.devices), 'gpu')}"


def _parts(cluster: Cluster, vertices: Counter[str], nodes: int) -> list[tuple[str, str]]:
    inside = ("gpu", "nic", "pcie", "cpu")
    node = [counted(vertices[kind] // nodes, kind) for kind in inside if vertices[kind]]
    if cluster.host_bytes:
        node.append(f"{format_bytes(cluster.host_bytes, decimals=None)} of host memory")
    rows = [
        ("nodes", f"{nodes:,} of {', '.join(node)}"),
        ("GPU", ", ".join([cluster.devices[0].gpu.name, *_gpu_facts(cluster.devices[0].gpu)])),
    ]
    tiers = [counted(vertices[kind], kind) for kind in ("leaf", "spine") if vertices[kind]]
    if tiers:
        rows.append(("network", f"{cluster.network}, {', '.join(tiers)}"))
    return rows


def _gpu_facts(gpu: Gpu) -> list[str]:
    peaks = gpu.peak_flops
    peak = peaks[DType.BF16 if DType.BF16 in peaks else DType.FP16]
    return [
        f"{format_bytes(gpu.usable_bytes)} usable",
        format_rate(gpu.hbm_bytes_per_s),
        f"{format_flops(peak)} dense {'bf16' if DType.BF16 in peaks else 'fp16'}",
        f"{gpu.power_watts:g} W",
    ]


def _link_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """A row for each kind of link between two kinds of vertex, one direction counted."""
    counts = Counter(map(_between, cluster.links))
    rows: dict[tuple[str, str, str, float, float], tuple[str, ...]] = {}
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


def _between(link: Link) -> tuple[str, str, str, float, float]:
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


def _facts(cluster: Cluster) -> list[str]:
    nodes = cluster.devices[-1].node + 1
    facts = [
        counted(nodes, "node"),
        f"{len(cluster.devices):,} × {cluster.devices[0].gpu.name}",
        *_gpu_facts(cluster.devices[0].gpu),
    ]
    if cluster.bisection_bytes_per_s:
        facts.append(f"bisection {format_rate(cluster.bisection_bytes_per_s, 3)}")
    return facts


def _draw(axes: Axes, scene: Scene) -> None:
    from matplotlib.patches import FancyBboxPatch

    for wire in scene.wires:
        x, y = zip(*wire.points, strict=True)
        if wire.alpha == 1.0:  # a halo, so that wires that cross don't seem to meet
            axes.plot(x, y, color="white", linewidth=wire.width + 3, zorder=wire.layer)
        axes.plot(
            x,
            y,
            color=KIND_COLOURS[wire.kind],
            linewidth=wire.width,
            alpha=wire.alpha,
            zorder=wire.layer + 0.1,
            solid_joinstyle="round",
        )
    for box in scene.boxes:
        fill, edge = FILLS[box.fill]
        axes.add_patch(
            FancyBboxPatch(
                (box.x, box.y),
                box.width,
                box.height,
                boxstyle="round,pad=0,rounding_size=0.8",
                facecolor=fill,
                edgecolor=edge,
                linewidth=1.0,
                zorder=box.layer,
            )
        )
        axes.text(
            box.x + box.width / 2,
            box.y + box.height / 2,
            box.text,
            ha="center",
            va="center",
            fontsize=box.size,
            color=INK,
            zorder=box.layer + 0.5,
            linespacing=1.4,
        )
    for caption in scene.captions:
        axes.plot(
            (caption.x, caption.x + 3.5),
            (caption.y, caption.y),
            color=KIND_COLOURS[caption.kind],
            linewidth=3,
            solid_capstyle="round",
        )
        axes.text(
            caption.x + 5,
            caption.y,
            caption.text,
            fontsize=11,
            color=INK,
            va="center",
            linespacing=1.35,
        )
    for x, y, text in scene.labels:
        axes.text(x, y, text, fontsize=10.5, color=QUIET, va="center", zorder=6)
