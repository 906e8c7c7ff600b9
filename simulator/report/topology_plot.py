"""The picture of a cluster: one node in full, its rails, and the rest in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simulator.hardware.cluster import Cluster
from simulator.report.figure import house_style, new_figure, save
from simulator.report.palette import INK, QUIET
from simulator.report.topology_layout import scene_of
from simulator.report.topology_scene import FILLS, KIND_COLOURS, Box, Caption, Wire
from simulator.report.vertices import counted, gpu_facts
from simulator.units import format_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_topology(cluster: Cluster, path: str | Path) -> None:
    """Draw a cluster; the suffix of ``path`` (png, svg, pdf) says how it is written.

    Equal clusters give equal bytes.
    """
    scene = scene_of(cluster)
    with house_style():
        figure = new_figure()
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0, 160), ylim=(0, 90))
        axes.axis("off")
        for wire in scene.wires:
            _wire(axes, wire)
        for box in scene.boxes:
            _box(axes, box)
        for caption in scene.captions:
            _caption(axes, caption)
        for left, height, text in scene.labels:
            axes.text(left, height, text, fontsize=10.5, color=QUIET, va="center", zorder=6)
        axes.text(5, 83.5, cluster.name, fontsize=22, fontweight="bold", color=INK, va="center")
        axes.text(5, 79, "  ·  ".join(_facts(cluster)), fontsize=12, color=QUIET, va="center")
        save(figure, path)


def _facts(cluster: Cluster) -> list[str]:
    nodes, gpu = cluster.devices[-1].node + 1, cluster.devices[0].gpu
    facts = [
        counted(nodes, "node"),
        f"{len(cluster.devices):,} × {gpu.name}",
        *gpu_facts(gpu),
    ]
    if cluster.bisection_bytes_per_s:
        facts.append(f"bisection {format_rate(cluster.bisection_bytes_per_s, 3)}")
    return facts


def _wire(axes: Axes, wire: Wire) -> None:
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


def _box(axes: Axes, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    face, edge = FILLS[box.fill]
    patch = FancyBboxPatch(
        (box.x, box.y),
        box.width,
        box.height,
        boxstyle=f"round,pad=0,rounding_size={min(0.8, box.width / 3)}",
        facecolor=face,
        edgecolor=edge,
        linewidth=1.0,
        zorder=box.layer,
    )
    axes.add_patch(patch)
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


def _caption(axes: Axes, caption: Caption) -> None:
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
