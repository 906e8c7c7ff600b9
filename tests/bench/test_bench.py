"""``make bench``: how long the work takes, in seconds and in bare SimPy loops."""

from __future__ import annotations

import pytest

from simulator.cli.output import plain_table
from tests.bench.rows import TIMEOUTS, Row, rows, simpy_loop

SLACK = 2.0
"""A row may take this many times its target before the benchmark fails: machines differ."""


@pytest.mark.bench
def test_the_work_takes_no_longer_than_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    unit = Row(name=f"bare SimPy loop, {TIMEOUTS:,} timeouts", target_s=None, work=simpy_loop)
    unit_s = unit.seconds()
    table, slow = [[unit.name, f"{unit_s:.3f}", "", "1.0", ""]], []
    for row in rows():
        seconds, target = row.seconds(), row.target_s or 0.0
        verdict = "" if seconds <= target else "over"
        table.append(
            [row.name, f"{seconds:.3f}", f"{target:g}", f"{seconds / unit_s:.1f}", verdict]
        )
        if row.met and seconds > SLACK * target:
            slow.append(row.name)
    headers = ["work", "seconds", "target", "loops", ""]
    with capsys.disabled():
        print("\n" + plain_table(headers, table, [False, True, True, True, False]))
    assert slow == []
