"""``timeline.png``: what each stream of one rank does in the last step, and what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.report.figure import house_style, new_figure, save
from simulator.report.palette import INK, QUIET, SPAN_COLOURS, SPAN_WORDS
from simulator.report.timeline_scene import Lane, TimelineScene, Window, build_timeline
from simulator.report.words import percent
from simulator.trace.timeline import SpanKind
from simulator.trace.trace import Trace
from simulator.units import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 0.72
_LEFT, _RIGHT = 0.115, 0.985
_CHARACTER_PIXELS = 7.2
_IDLE = "#EDEDED"


def plot_timeline(trace: Trace, path: str | Path | None = None, rank: int | None = None) -> Figure:
    """Draw the streams of ``rank`` (None: the peak rank) in the last step; save it if given a path.

    Below the whole step one layer in forward and in backward, enlarged. Raises UserError without
    a timeline.
    """
    scene = build_timeline(trace, rank)
    with house_style():
        figure = new_figure()
        _title(figure, scene)
        _legend(figure, scene)
        bottom = 0.49 if scene.zooms else 0.1
        whole = figure.add_axes((_LEFT, bottom, _RIGHT - _LEFT, 0.775 - bottom))
        _draw(whole, scene, (0.0, scene.step_ms), labels=False)
        whole.xaxis.tick_top()
        whole.xaxis.set_label_position("top")
        words = f"ms since step {scene.step} began on the compute stream"
        whole.set_xlabel(words, color=QUIET, labelpad=8)
        whole.spines["bottom"].set_visible(False)
        _zooms(figure, whole, scene)
        if path is not None:
            save(figure, path)
    return figure


def _draw(ax: Axes, scene: TimelineScene, window: Window, *, labels: bool) -> None:
    """All lanes between two times, the compute stream on top."""
    box = ax.get_position()
    figure: Any = ax.figure
    pixel = (window[1] - window[0]) / (box.width * figure.get_figwidth() * figure.dpi)
    for y, lane in enumerate(scene.lanes):
        part = lane.within(window)
        ax.broken_barh(
            [(window[0], window[1] - window[0])],
            (y - _HEIGHT / 2, _HEIGHT),
            facecolors=_IDLE,
            zorder=1,
        )
        for kind in SpanKind:
            bars = part.bars(kind, -1.0 if labels else pixel)
            waits = kind in (SpanKind.IDLE_COMMUNICATION, SpanKind.IDLE_HOST)
            ax.broken_barh(
                [(start, max(length, pixel)) for start, length in bars],  # visible however short
                (y - _HEIGHT / 2, _HEIGHT),
                facecolors=SPAN_COLOURS[kind],
                edgecolors="white",
                linewidth=0.6 if labels and y == 0 else 0.0,
                zorder=3 if waits else 2,
            )
        if labels:
            _labels(ax, part, y, pixel, window[1])
    ax.set_xlim(*window)
    ax.set_ylim(len(scene.lanes) - 0.45, -0.55)
    ax.set_yticks(range(len(scene.lanes)), [lane.name for lane in scene.lanes])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _labels(ax: Axes, lane: Lane, y: int, pixel: float, end: float) -> None:
    """Names inside the spans that are wide enough, else to their right where that is free."""
    style: dict[str, Any] = {"va": "center", "fontsize": 9.5, "zorder": 4, "clip_on": True}
    until = [*lane.start.tolist()[1:], end]
    for i, (kind, label) in enumerate(zip(lane.kind.tolist(), lane.label, strict=True)):
        if kind == SpanKind.IDLE_HOST or not label:
            continue
        text = label.removeprefix(f"{lane.name} ")
        text = f"waits: {text}" if kind == SpanKind.IDLE_COMMUNICATION else text
        begin, stop = float(lane.start[i]), float(lane.end[i])
        inside, beside = (
            int(room / pixel / _CHARACTER_PIXELS) - 1 for room in (stop - begin, until[i] - stop)
        )
        if len(text) <= inside:
            ax.text((begin + stop) / 2, y, text, ha="center", color="white", **style)
        elif len(text) <= beside:
            ax.text(stop + 5 * pixel, y, text, ha="left", color=INK, **style)


def _zooms(figure: Figure, whole: Axes, scene: TimelineScene) -> None:
    """One panel a zoom, side by side, and a frame in the big panel where each one lies."""
    from matplotlib.patches import ConnectionPatch

    count = len(scene.zooms)
    width = (_RIGHT - _LEFT - 0.02 * max(count - 1, 0)) / max(count, 1)
    for i, (words, window) in enumerate(scene.zooms):
        ax = figure.add_axes((_LEFT + i * (width + 0.02), 0.085, width, 0.29))
        _draw(ax, scene, window, labels=True)
        length = format_time((window[1] - window[0]) / 1e3)
        ax.set_title(f"{words} ({length} shown), ms", fontsize=11, loc="left", color=INK)
        if i:
            ax.set_yticks([])
        bottom, _ = whole.get_ylim()
        whole.axvspan(*window, facecolor="none", edgecolor=INK, linewidth=1.1, zorder=5)
        for x, corner in zip(window, (0.0, 1.0), strict=True):
            line = ConnectionPatch(
                (x, bottom), (corner, 1.13), "data", "axes fraction", axesA=whole, axesB=ax
            )
            line.set(color="#AAAAAA", linewidth=0.8, zorder=0)
            figure.add_artist(line)


def _title(figure: Figure, scene: TimelineScene) -> None:
    header = scene.trace.header
    figure.text(0.03, 0.947, header.scenario, fontsize=17, weight="bold", color=INK)
    step = f"step {scene.step}: {format_time(scene.step_ms / 1e3, 4)}"
    figure.text(0.03, 0.908, step, fontsize=13, color=INK)
    where = f"rank {scene.rank} of {header.world_size}, {header.gpu}"
    figure.text(_RIGHT, 0.947, where, fontsize=11, ha="right", color=QUIET)


def _legend(figure: Figure, scene: TimelineScene) -> None:
    """Colour, meaning and, for what the compute stream does, its share of the step."""
    from matplotlib.patches import Patch

    compute, handles = scene.lanes[0], []
    length = {k: float((compute.end - compute.start)[compute.kind == k].sum()) for k in SpanKind}
    rest = scene.step_ms - sum(length.values())
    length[SpanKind.IDLE_COMMUNICATION] += length.pop(SpanKind.COMMUNICATION)
    for kind in SpanKind:
        if length.get(kind) or any((lane.kind == kind).any() for lane in scene.lanes):
            words = f"{SPAN_WORDS[kind]} {_share(length.get(kind, 0.0), scene)}".strip()
            handles.append(Patch(color=SPAN_COLOURS[kind], label=words))
    handles.append(Patch(color=_IDLE, label=f"idle {_share(rest, scene)}".strip()))
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.022, 0.895),
        frameon=False,
        ncols=len(handles),
        handlelength=1.0,
        handleheight=1.0,
        columnspacing=1.8,
        fontsize=11,
    )


def _share(length: float, scene: TimelineScene) -> str:
    return percent(length, scene.step_ms, 1) if length > 1e-9 else ""
