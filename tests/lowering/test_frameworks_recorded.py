"""Other frameworks than FSDP2 against real PyTorch: live bytes after each part of a step, and the
peak of every phase, to the byte."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from simulator.memory.ledger import replay
from simulator.program.verify import verify
from tests.recorded import DATA, peaks_by_phase, program_of

RUNS: dict[str, Any] = json.loads(gzip.decompress((DATA / "framework_runs.json.gz").read_bytes()))


@pytest.mark.parametrize("name", sorted(RUNS))
def test_live_bytes_and_peaks(name: str) -> None:
    run = RUNS[name]
    program = program_of(run["config"])
    verify(program)
    found = replay(program)
    marks = [tuple(mark) for mark in run["marks"] if mark[0] != "ddp_init"]
    assert [(m.mark, m.allocated) for m in found.marks] == marks
    ours = {(peak.step, peak.phase): peak.allocated for peak in found.phases}
    assert ours == {key: peak["total"] for key, peak in peaks_by_phase(run).items()}
