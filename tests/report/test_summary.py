"""The words of a summary say what the result says, and its tables add up."""

import doctest
import subprocess
import sys
from dataclasses import replace

import pytest
from synthetic import MIB, Shape, synthetic_trace, two_classes

from simulator.report import table, words
from simulator.report.summary import build_summary
from simulator.report.table import Section, bar, lines
from simulator.report.text import render
from simulator.trace.result import summarise

GIB = 2**30


@pytest.fixture(scope="module")
def result():
    return summarise(synthetic_trace())


def section(result, title):
    return next(s for s in build_summary(result).sections if s.title.startswith(title))


@pytest.mark.parametrize("module", [table, words])
def test_doctests(module):
    assert doctest.testmod(module).failed == 0


def test_the_verdict_comes_first_and_the_peak_is_named(result):
    text = render(build_summary(result)).splitlines()
    assert text[3] == "FITS: 41.1 of 79.2 GiB usable, 38.1 GiB headroom (48 %)"
    assert text[4] == "STEP: 1.005 s, 16,298 tokens/s/GPU, MFU 49.4 %"
    assert text[5].startswith("The peak is on every rank, in step 1, forward: loss allocates log")


@pytest.mark.parametrize(
    ("peak", "usable", "start"),
    [
        (61 * GIB, 80 * GIB, "FITS: 61.0 of 80.0 GiB usable, 19.0 GiB headroom (24 %)"),
        (77 * GIB, 80 * GIB, "FITS, TIGHTLY: 77.0 of 80.0 GiB"),
        (80 * GIB, 80 * GIB, "FITS, TIGHTLY"),
        (80 * GIB + 512, 80 * GIB, "DOES NOT FIT: needs <0.001 GiB more"),
        (90 * GIB, 80 * GIB, "DOES NOT FIT: needs 10.0 GiB more"),
    ],
)
def test_verdicts(peak, usable, start):
    assert words.verdict(peak, usable).startswith(start)


def test_a_run_that_does_not_fit_says_by_how_much():
    summary = build_summary(summarise(synthetic_trace(Shape(saved=2000 * MIB))))
    assert not summary.fits
    assert summary.verdict.startswith("DOES NOT FIT: needs ")


def test_the_breakdown_ends_in_its_sum(result):
    rows = section(result, "Memory at the peak").rows
    assert rows[-1][:2] == ("all", "41.13")
    shown = sum(float(row[1]) for row in rows[:-1] if not row[1].startswith("<"))
    assert shown == pytest.approx(41.13, abs=0.02)


def test_layers_fall_together_among_the_largest_tensors(result):
    assert section(result, "Largest").rows[0] == (
        "5.00", "32 × 0.156", "layers.*: saved0", "activations"
    )  # fmt: skip


def test_the_textbook_and_what_it_misses_add_up_to_the_peak(result):
    parameters, ranks = 8_030_261_248, 8
    for row, per_parameter in zip(section(result, "Beside").rows, (16, 12), strict=True):
        book = per_parameter * parameters / ranks / GIB
        assert float(row[1]) == pytest.approx(book, abs=0.006)
        assert float(row[1]) + float(row[2]) == pytest.approx(41.13, abs=0.02)


def test_a_peak_below_the_textbook_is_a_negative_miss():
    trace = synthetic_trace()
    many = 80_000_000_000
    huge = replace(trace, header=replace(trace.header, parameters=many, trained_parameters=many))
    assert section(summarise(huge), "Beside").rows[0][2].startswith("−")


def test_the_shares_of_time_are_of_the_step(result):
    rows = section(result, "Where the step goes").rows
    assert [row[0] for row in rows] == [
        "compute", "optimizer", "exposed communication", "waiting for the host"
    ]  # fmt: skip
    assert sum(float(row[2].split()[0]) for row in rows) == pytest.approx(100, abs=0.3)


def test_memory_only_says_that_nothing_was_timed():
    text = render(build_summary(summarise(synthetic_trace(timed=False))))
    assert "Memory only: nothing was timed." in text
    assert "MFU" not in text
    assert "Where the step goes" not in text


def test_rank_classes_appear_where_ranks_differ(result):
    assert not any(s.title.startswith("Ranks") for s in build_summary(result).sections)
    rows = section(summarise(two_classes()), "Ranks").rows
    assert [(row[0], row[4]) for row in rows] == [("7", "1–7"), ("1", "0")]
    assert "The peak is on rank 1–7" in render(build_summary(summarise(two_classes())))


def test_what_is_left_out_is_said():
    text = render(build_summary(summarise(synthetic_trace(Shape(others=2 * GIB)))))
    assert "NCCL" in text
    assert "Others hold 2.00 GiB" in text
    assert "  ! kernel efficiencies of this GPU are a prior" in text


@pytest.mark.parametrize("width", [40, 60, 80, 92, 100])
@pytest.mark.parametrize("trace", [synthetic_trace(), two_classes()])
def test_no_line_is_wider_than_asked(trace, width):
    text = render(build_summary(summarise(trace)), width)
    assert max(map(len, text.splitlines())) <= width
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_long_cell_gives_way():
    rows = (("a" * 200, "1.00"), ("b", "22.00"))
    out = lines(Section(title="t", align="lr", rows=rows), 40)
    assert [len(line) for line in out[1:]] == [40, 40]
    assert "…" in out[1]


def test_a_bar_is_never_wider_than_its_room():
    assert [len(bar(share, 10)) for share in (0.0, 1e-9, 0.5, 1.0, 7.0)] == [0, 1, 5, 10, 10]


def test_nothing_is_drawn_to_print_a_summary():
    """``dryfit run`` without ``--out`` must not pay for matplotlib."""
    code = (
        "import sys, simulator.report.summary, simulator.report.text;"
        "import simulator.report.memory_plot, simulator.report.timeline_plot;"
        "import simulator.trace.result;"
        "print(sorted(m for m in ('matplotlib', 'rich', 'pandas') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
