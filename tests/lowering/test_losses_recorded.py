"""FSDP2 with each loss that runs on fake tensors: the whole curve and the peaks, to the byte."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest

from simulator.memory.ledger import replay
from simulator.program.program import Program
from simulator.program.verify import verify
from tests.recorded import DATA, peaks_by_phase, program_of

RUNS: dict[str, Any] = json.loads(gzip.decompress((DATA / "recorded_losses.json.gz").read_bytes()))


@cache
def program(name: str) -> Program:
    return program_of(RUNS[name]["config"])


@pytest.mark.parametrize("name", sorted(RUNS))
def test_live_bytes_at_every_hook_boundary(name: str) -> None:
    verify(program(name))
    marks = [[mark.mark, mark.allocated] for mark in replay(program(name)).marks]
    assert marks == RUNS[name]["marks"]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_peak_of_every_phase(name: str) -> None:
    found = {(p.step, p.phase): p.allocated for p in replay(program(name), detail=False).phases}
    recorded = peaks_by_phase(RUNS[name])
    assert found == {key: peak["total"] for key, peak in recorded.items()}
