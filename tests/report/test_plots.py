"""Pictures: the same trace gives the same bytes, and nothing that matters is lost on the way."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import MIB, Shape, synthetic_trace, two_classes

from simulator.errors import UserError
from simulator.memory.ledger import SLACK, WORKSPACES
from simulator.program.instructions import Category
from simulator.report.figure import new_figure
from simulator.report.memory_plot import plot_memory
from simulator.report.memory_scene import build_scene, decimated
from simulator.report.palette import CATEGORY_COLOURS, SPAN_COLOURS, SPAN_WORDS, stack_order
from simulator.report.timeline_plot import plot_timeline
from simulator.report.timeline_scene import build_timeline
from simulator.trace.result import summarise
from simulator.trace.timeline import SpanKind


@pytest.fixture(scope="module")
def trace():
    return synthetic_trace()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
@pytest.mark.parametrize("plot", [plot_memory, plot_timeline])
def test_the_same_trace_gives_the_same_bytes(trace, tmp_path, plot, suffix):
    for name in ("one", "two"):
        plot(trace, tmp_path / f"{name}.{suffix}")
    first, second = (tmp_path / f"{name}.{suffix}" for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("plot", [plot_memory, plot_timeline])
def test_pictures_are_1600_by_900(trace, tmp_path, plot):
    plot(trace, tmp_path / "a.png")
    header = (tmp_path / "a.png").read_bytes()[16:24]
    assert [int.from_bytes(header[i : i + 4], "big") for i in (0, 4)] == [1600, 900]


def test_a_users_settings_do_not_change_the_picture(trace, tmp_path):
    import matplotlib

    plot_memory(trace, tmp_path / "plain.png")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "savefig.dpi": 33}):
        plot_memory(trace, tmp_path / "odd.png")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "odd.png").read_bytes()


RUNS = [
    synthetic_trace(),
    synthetic_trace(Shape(saved=2000 * MIB)),
    synthetic_trace(Shape(saved=1500 * MIB, others=5 * 2**30), timed=False),
    synthetic_trace(Shape(saved=100 * MIB, logits=100 * MIB)),
    synthetic_trace(steps=1),
    synthetic_trace(steps=6),
    synthetic_trace(Shape(layers=1)),
    two_classes(),
]


@pytest.mark.parametrize("other", RUNS)
def test_any_run_can_be_drawn(other, tmp_path):
    plot_memory(other, tmp_path / "memory.png", rank=0)
    if other.timeline is not None:
        plot_timeline(other, tmp_path / "timeline.png", rank=7)


def texts_of(figure):
    import matplotlib.text

    return [t.get_text() for t in figure.findobj(matplotlib.text.Text)]


def test_the_peak_is_annotated_with_module_tensor_and_size(trace):
    words = "\n".join(texts_of(plot_memory(trace)))
    assert "peak 41.1 GiB in step 1, forward" in words
    assert "loss allocates log_softmax (3.91 GiB)" in words
    assert "FITS: 41.1 of 79.2 GiB usable" in words
    assert {"step 0", "step 1", "forward", "backward", "optimizer"} <= set(words.splitlines())


def drawn_texts(figure):
    """Each text on the picture with its box; the ticks that lie out of view are not drawn."""
    figure.canvas.draw()
    texts = [*figure.texts, *(t for legend in figure.legends for t in legend.get_texts())]
    for ax in figure.axes:
        texts += [*ax.texts, ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            texts += [label for t in ticks for label in (t.label1, t.label2) if label.get_visible()]
    return [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text().strip()]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("plot", [plot_memory, plot_timeline])
def test_no_two_texts_overlap_or_leave_the_picture(run, plot):
    if plot is plot_timeline and run.timeline is None:
        return
    boxes = drawn_texts(plot(run))
    for i, (one, a) in enumerate(boxes):
        assert 0 <= a.x0 <= a.x1 <= 1600, one
        assert 0 <= a.y0 <= a.y1 <= 900, one
        assert not [other for other, b in boxes[i + 1 :] if a.overlaps(b)], one


def test_a_plot_on_given_axes_stays_in_its_figure(trace):
    figure = new_figure()
    ax = figure.add_subplot()
    assert plot_memory(trace, ax=ax) is figure
    assert figure.axes == [ax]


def test_decimation_keeps_ends_and_extremes_of_each_column():
    rng = np.random.default_rng(1)
    x, y = np.sort(rng.random(50_000)), rng.random(50_000)
    keep = decimated(x, y, 100)
    assert len(keep) <= 400
    assert (keep[0], keep[-1]) == (0, len(x) - 1)
    assert int(np.argmax(y)) in keep
    assert int(np.argmin(y)) in keep
    assert (np.diff(keep) > 0).all()


def test_decimation_leaves_a_short_curve_alone():
    assert decimated(np.arange(5.0), np.ones(5), 100).tolist() == [0, 1, 2, 3, 4]


def test_the_drawn_stack_reaches_the_peak_and_no_higher(trace):
    scene = build_scene(trace, None)
    for columns in (10_000, 40):
        _, heights = scene.stack(scene.begin, scene.end, columns)
        assert heights[:, -1].max() == pytest.approx(scene.peak[1])
    begin, end = scene.around_peak()
    edges, heights = scene.stack(begin, end, 300)
    assert heights[:, -1].max() == pytest.approx(scene.peak[1])
    assert edges[-1] == end


def test_every_category_and_kind_has_a_colour_of_its_own():
    assert set(CATEGORY_COLOURS) == {c.value for c in Category} | {WORKSPACES, SLACK}
    assert len(set(CATEGORY_COLOURS.values())) == len(CATEGORY_COLOURS)
    assert set(SPAN_COLOURS) == set(SPAN_WORDS) == set(SpanKind)
    assert stack_order(("new", "temporaries", "parameters")) == [2, 1, 0]


def test_lanes_hold_one_step_and_zoom_into_the_middle_layer(trace):
    scene = build_timeline(trace, None)
    assert [lane.name for lane in scene.lanes] == ["compute", "all_gather", "reduce_scatter"]
    assert scene.step_ms == pytest.approx(1e3 * summarise(trace).step_time_s)
    assert all((lane.start >= 0).all() for lane in scene.lanes)
    assert all((lane.end <= scene.step_ms + 1e-9).all() for lane in scene.lanes)
    assert [words for words, _ in scene.zooms] == ["layers.16, forward", "layers.16, backward"]


def test_hooks_say_what_a_call_runs_whatever_its_block_is_named(trace):
    report = trace.memory[0]
    blocks = replace(report.calls, name=tuple("block after block" for _ in report.calls.name))
    anonymous = replace(trace, memory=(replace(report, calls=blocks),))
    zooms = [words for words, _ in build_timeline(anonymous, None).zooms]
    assert zooms == ["layers.16, forward", "layers.16, backward"]
    hookless = replace(trace, memory=(replace(report, calls=blocks, marks=()),))
    zooms = [words for words, _ in build_timeline(hookless, None).zooms]
    assert zooms == ["block after block, forward", "block after block, backward"]


def test_closing_gaps_loses_no_time_but_the_gaps(trace):
    lane = build_timeline(trace, None).lanes[0]
    apart = lane.bars(SpanKind.COMPUTE, -1.0)
    closed = lane.bars(SpanKind.COMPUTE, 0.1)
    assert len(closed) < len(apart) == int((lane.kind == SpanKind.COMPUTE).sum())
    assert sum(b[1] for b in closed) >= sum(b[1] for b in apart)


def test_memory_only_has_no_timeline_to_draw():
    with pytest.raises(UserError, match="memory-only"):
        plot_timeline(synthetic_trace(timed=False))
