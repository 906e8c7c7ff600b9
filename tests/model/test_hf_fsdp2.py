"""Hugging Face's models under FSDP2: the whole curve and the peaks against real PyTorch's.

Three layers of published models, blocks and root wrapped, with and without checkpointing, with and
without padding, in mixed precision and under autocast: live bytes at every hook boundary and the
peak of every phase, to the byte.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest

from simulator.errors import UnsupportedError
from simulator.memory.ledger import replay
from simulator.program.program import Program
from simulator.program.verify import verify
from tests.recorded import DATA, peaks_by_phase, program_of

FILES = ("recorded_hf_fsdp2.json.gz", "recorded_hf_autocast.json.gz")
RUNS: dict[str, Any] = {}
for _file in FILES:
    RUNS |= json.loads(gzip.decompress((DATA / _file).read_bytes()))["runs"]


NAMES = sorted(RUNS)


@cache
def program(name: str) -> Program:
    return program_of(RUNS[name]["config"])


def test_the_efficient_kernel_takes_no_grouped_heads() -> None:
    config = RUNS["llama3_8b_none"]["config"] | {"attn": "efficient"}
    with pytest.raises(UnsupportedError, match="'sdpa' picks"):
        program_of(config)


@pytest.mark.parametrize("name", NAMES)
def test_live_bytes_at_every_hook_boundary(name: str) -> None:
    run = RUNS[name]
    verify(program(name))
    marks = replay(program(name)).marks
    if run["config"]["opt"] is None:  # no optimizer was stepped there
        marks = tuple(mark for mark in marks if mark.mark != "opt_done")
    assert [mark.mark for mark in marks] == [mark for mark, _ in run["marks"]]
    for found, (mark, recorded) in zip(marks, run["marks"], strict=True):
        assert found.allocated == recorded, mark


@pytest.mark.parametrize("name", NAMES)
def test_peak_of_every_phase(name: str) -> None:
    run = RUNS[name]
    ours = {(p.step, p.phase): p for p in replay(program(name), detail=False).phases}
    recorded = peaks_by_phase(run)
    assert set(ours) == set(recorded)
    for key, peak in recorded.items():
        assert ours[key].allocated == peak["total"], key
