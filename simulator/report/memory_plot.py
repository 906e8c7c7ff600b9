"""``memory.png``: what one rank holds over time, by category, against what its GPU has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.report.figure import house_style, new_figure, save
from simulator.report.memory_scene import GIB, Scene, build_scene
from simulator.report.palette import (
    CATEGORY_COLOURS,
    INK,
    NO,
    PHASE_COLOURS,
    QUIET,
    UNKNOWN_CATEGORY,
    YES,
)
from simulator.report.words import allocating, gib, verdict
from simulator.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS, _ZOOM_COLUMNS = 1200, 300
"""Columns of pixels that the curves are decimated to."""

_OUTLINED = 600
"""Points from which on an outline would hide what it surrounds."""


def plot_memory(
    trace: Trace,
    path: str | Path | None = None,
    *,
    ax: Axes | None = None,
    rank: int | None = None,
) -> Figure:
    """Draw the memory of ``rank`` (None: the peak rank) over time; save it if given a path.

    Without a timeline the x axis is the order of calls. ``ax``: draw the curve there, in a figure
    of yours, without title and zoom.
    """
    scene = build_scene(trace, rank)
    with house_style():
        if ax is None:
            figure: Any = new_figure()
            _title(figure, scene)
            ax = figure.add_axes((0.055, 0.085, 0.735, 0.74))
            _zoom(figure.add_axes((0.835, 0.085, 0.15, 0.23)), scene)
        else:
            figure = ax.figure
        _curve(ax, scene)
        _key(ax, scene)
        if path is not None:
            save(figure, path)
    result: Figure = figure
    return result


def _curve(ax: Axes, scene: Scene) -> None:
    _layers(ax, scene, scene.begin, scene.end, _COLUMNS)
    _reserved(ax, scene)
    note = _limits(ax, scene)
    _capacity(ax, scene)
    _phases(ax, scene)
    _peak(ax, scene, note)


def _layers(ax: Axes, scene: Scene, begin: float, end: float, columns: int) -> None:
    """The stack, painted from the top down to zero so that no seams show between its layers."""
    edges, heights = scene.stack(begin, end, columns)
    for layer in reversed(range(len(scene.names))):
        upper, lower = heights[:, layer], heights[:, layer - 1] if layer else 0.0
        if (upper > lower).any():
            colour = CATEGORY_COLOURS.get(scene.names[layer], UNKNOWN_CATEGORY)
            ax.fill_between(edges, upper, step="post", color=colour, linewidth=0, zorder=2)
    if len(edges) < _OUTLINED:
        ax.step(edges, heights[:, -1], where="post", color=INK, linewidth=0.5, zorder=3)


def _reserved(ax: Axes, scene: Scene) -> None:
    """What the allocator has mapped, above the stack."""
    if scene.reserved is None:
        return
    changes = np.flatnonzero(np.diff(scene.reserved, prepend=-1.0))
    x = np.append(scene.x[changes], scene.end)
    y = np.append(scene.reserved[changes], scene.reserved[-1])
    ax.step(x, y, where="post", color=INK, linewidth=1.3, zorder=3)


def _limits(ax: Axes, scene: Scene) -> float:
    """Set the axes; returns where (GiB) the note on the peak goes: above it, in free space."""
    capacity = scene.trace.header.device_bytes / GIB
    reserved = 0.0 if scene.reserved is None else float(scene.reserved.max())
    drawn = max(scene.peak[1], reserved)
    highest = max(capacity, drawn)
    between = capacity - drawn > 0.2 * highest
    ax.set_ylim(0, highest * (1.08 if between else 1.25))
    ax.set_xlim(scene.begin, scene.end)
    ax.set_ylabel("GiB", color=INK)
    ax.set_xlabel(scene.unit, color=INK)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6, zorder=0)
    ax.set_axisbelow(True)
    return drawn + 0.07 * highest if between else highest * 1.12


def _capacity(ax: Axes, scene: Scene) -> None:
    header = scene.trace.header
    ax.axhline(header.device_bytes / GIB, color=NO, linewidth=1.6, zorder=4)
    usable, words = header.device_bytes - header.reserved_by_others, f"{header.gpu} has"
    if header.reserved_by_others:
        ax.axhline(usable / GIB, color=NO, linewidth=1.2, linestyle=(0, (5, 3)), zorder=4)
        words = f"{gib(usable)} GiB usable of"
    ax.annotate(
        f"{words} {gib(header.device_bytes)} GiB",
        (1.0, header.device_bytes / GIB),
        xycoords=("axes fraction", "data"),
        xytext=(-6, 4),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=NO,
        fontsize=10.5,
    )


def _phases(ax: Axes, scene: Scene) -> None:
    """Pale bands behind the curve and, above it, a strip that names phases and steps."""
    from matplotlib.patches import Rectangle

    across, steps = ax.get_xaxis_transform(), dict[int, list[float]]()
    share = 1.0 / ((scene.end - scene.begin) or 1.0)
    crowded = len(scene.windows) >= 12
    for step, phase, begin, end in scene.windows:
        colour = PHASE_COLOURS.get(phase, "white")
        ax.axvspan(begin, end, color=colour, alpha=0.35, linewidth=0, zorder=0)
        box = Rectangle((begin, 1.005), end - begin, 0.035, transform=across, clip_on=False)
        box.set(facecolor=colour, edgecolor="white", linewidth=0.8)
        ax.add_patch(box)
        inside = (end - begin) * share > 0.011 * len(phase)
        if inside or (end > begin and phase == "optimizer" and not crowded):
            _strip_text(ax, (begin + end) / 2, 1.0215 if inside else 1.062, phase, QUIET)
        if phase != "init":
            steps.setdefault(step, [begin, end])[1] = end
    for step, (begin, end) in steps.items():
        if (end - begin) * share > (0.05 if crowded else 0.2):
            _strip_text(ax, (begin + end) / 2, 1.062, f"step {step}", INK)


def _strip_text(ax: Axes, x: float, y: float, text: str, colour: str) -> None:
    across = ax.get_xaxis_transform()
    style = {"ha": "center", "va": "center", "fontsize": 10.5, "color": colour}
    ax.text(x, y, text, transform=across, clip_on=False, **style)  # type: ignore[arg-type]


def _peak(ax: Axes, scene: Scene, top: float) -> None:
    peak, (x, y) = scene.report.peak, scene.peak
    left, right = ax.get_xlim()
    place = (x - left) / (right - left)
    align = "left" if place < 0.25 else "right" if place > 0.75 else "center"
    what = "peak" if scene.reserved is None else "peak of allocated"
    anchor = {"left": 0.03, "center": 0.5, "right": 0.97}[align]
    ax.plot([x], [y], "o", color=INK, markersize=6, zorder=6)
    ax.annotate(
        f"{what} {gib(peak.allocated)} GiB in step {peak.step}, {peak.phase}\n"
        f"{peak.at} allocates {allocating(scene.report)}",
        (x, y),
        xytext=(x, top),
        ha=align,
        va="bottom",
        color=INK,
        fontsize=11.5,
        linespacing=1.4,
        zorder=7,
        bbox={"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "#999999"},
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.9, "relpos": (anchor, 0.0)},
    )


def _key(ax: Axes, scene: Scene) -> None:
    """The legend as a table to the right: colour, category, GiB at the peak."""
    held = scene.report.peak.breakdown
    drawn = (scene.held.max(axis=0) > 0).tolist()
    place: dict[str, Any] = {"transform": ax.transAxes, "clip_on": False}
    ax.text(1.265, 0.985, "GiB at the peak", ha="right", color=QUIET, fontsize=10.5, **place)
    names = [n for n, any_ in zip(scene.names[::-1], drawn[::-1], strict=True) if any_]
    y, step = 0.985, min(0.042, 0.59 / (len(names) + 4))
    for name in names:
        y -= step
        colour = CATEGORY_COLOURS.get(name, UNKNOWN_CATEGORY)
        ax.plot([1.022], [y + 0.009], "s", color=colour, markersize=11, **place)
        size = held.get(name, 0)
        ax.text(1.038, y, name, color=INK if size else QUIET, **place)
        ax.text(1.265, y, gib(size, 2), ha="right", color=INK if size else QUIET, **place)
    ax.plot([1.015, 1.265], [y - 0.011] * 2, color="#999999", linewidth=0.8, **place)
    y -= step + 0.005
    total = gib(scene.report.peak.allocated, 2)
    ax.text(1.038, y, "allocated", weight="bold", color=INK, **place)
    ax.text(1.265, y, total, ha="right", weight="bold", color=INK, **place)
    _beyond(ax, scene, y, step, place)


def _beyond(ax: Axes, scene: Scene, y: float, step: float, place: dict[str, Any]) -> None:
    """Under the key: what the GPU holds beyond what is allocated, up to its whole."""
    allocator, outside = scene.report.allocator, scene.trace.header.outside
    if allocator is None or outside is None:
        return
    cached = allocator.peak_reserved - scene.report.peak.allocated
    rows = (
        ("reserved beyond it", cached),
        ("CUDA context, NCCL", outside.usual),
        ("on the GPU", allocator.peak_reserved + outside.usual),
    )
    for name, size in rows:
        y -= step
        weight = "bold" if name == "on the GPU" else "normal"
        ax.text(1.038, y, name, color=INK, weight=weight, **place)
        ax.text(1.265, y, gib(size, 2), ha="right", color=INK, weight=weight, **place)
    ax.plot([1.015, 1.03], [y + 2 * step + 0.009] * 2, color=INK, linewidth=1.3, **place)


def _zoom(ax: Axes, scene: Scene) -> None:
    """The neighbourhood of the peak, enlarged; its axis doesn't start at zero."""
    begin, end = scene.around_peak()
    _layers(ax, scene, begin, end, _ZOOM_COLUMNS)
    _, heights = scene.stack(begin, end, _ZOOM_COLUMNS)
    low, high = float(heights[:, -1].min()), scene.peak[1]
    ax.set_xlim(begin, end)
    ax.set_ylim(max(low - 0.35 * (high - low), 0.0), high + 0.12 * (high - low or 1.0))
    ax.plot(*scene.peak, "o", color=INK, markersize=5, zorder=6)
    ax.set_title("around the peak, GiB", fontsize=10.5, color=QUIET, loc="left")
    ax.tick_params(labelsize=9)
    ax.locator_params(axis="x", nbins=4)


def _title(figure: Figure, scene: Scene) -> None:
    header, peak = scene.trace.header, scene.report.peak.allocated
    if scene.report.allocator is not None and header.outside is not None:
        peak = scene.report.allocator.peak_reserved + header.outside.usual
    usable = header.device_bytes - header.reserved_by_others
    figure.text(0.055, 0.947, header.scenario, fontsize=17, weight="bold", color=INK)
    words = verdict(peak, usable)
    figure.text(0.055, 0.912, words, fontsize=13, color=YES if peak <= usable else NO)
    where = f"rank {scene.rank} of {header.world_size}, {header.gpu}"
    figure.text(0.985, 0.947, where, fontsize=11, ha="right", color=QUIET)
    words = "bytes allocated, before the allocator's reserve, CUDA context and NCCL"
    if scene.reserved is not None:
        words = "coloured: allocated; line: reserved by the allocator"
    figure.text(0.985, 0.916, words, fontsize=10, ha="right", color=QUIET)
