"""Adapters and frozen parts against real PyTorch: what a block keeps, and FSDP2's whole curve.

Kept bytes of one Llama-2 7B block (s = 4096, b = 1, rank 16), torch 2.13 autograd on fake CUDA
tensors; FSDP2 runs with peft 0.21's adapters, every storage rounded to 512 bytes in host order.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.fine_tuning import ALL_LINEAR, Adapters, FineTuning
from simulator.memory.ledger import replay
from simulator.model.decoder import Shape
from simulator.model.families import FAMILIES
from simulator.model.graph import Graph
from simulator.model.presets import PRESETS
from simulator.program.program import Program
from simulator.program.verify import verify
from tests.recorded import DATA, peaks_by_phase, program_of

RUNS: dict[str, Any] = json.loads(gzip.decompress((DATA / "fine_tuning_runs.json.gz").read_bytes()))
REFUSED = {"freeze_lower_half_reshard2"}
"""Slices that ``reshard_after_forward: int`` keeps outlive a step where no backward comes."""
NAMES = sorted(RUNS.keys() - REFUSED)

ATTENTION = ("q", "k", "v", "o")
FROZEN = FineTuning(freeze=("layers",))


def lora(*targets: str, dropout: float = 0.0, dtype: DType | None = None) -> FineTuning:
    return FineTuning(adapters=Adapters(rank=16, targets=targets, dropout=dropout, dtype=dtype))


KEPT = {
    ("torchtitan", "frozen"): (FROZEN, 472_416_280),
    ("torchtitan", "attention"): (lora(*ATTENTION), 506_495_000),
    ("torchtitan", "attention fp32"): (lora(*ATTENTION, dtype=DType.FP32), 741_900_312),
    ("torchtitan", "all"): (lora(ALL_LINEAR), 630_620_184),
    ("torchtitan", "all dropout"): (lora(ALL_LINEAR, dropout=0.05), 910_589_976),
    ("torchtitan", "all fp32 dropout"): (
        lora(ALL_LINEAR, dropout=0.05, dtype=DType.FP32),
        1_203_011_608,
    ),
    ("hf", "attention"): (lora(*ATTENTION), 573_603_864),
    ("hf", "q, v"): (lora("q", "v"), 573_341_720),
    ("hf", "all fp32"): (lora(ALL_LINEAR, dtype=DType.FP32), 1_124_368_408),
}
"""(style, what is trained) -> bytes that autograd keeps of one block."""


def block(style: str, tuning: FineTuning | None) -> Graph:
    config = replace(PRESETS["llama-2-7b"], style=style)
    shape = Shape(batch=1, seq=4096, dtype=DType.BF16, tuning=tuning)
    return FAMILIES["llama"](replace(config, layers=2), shape).blocks[-1]


@pytest.mark.parametrize("case", KEPT, ids=" ".join)
def test_bytes_that_a_block_keeps(case: tuple[str, str]) -> None:
    """The second of two blocks: what is trained below it asks for its input's gradient."""
    tuning, kept = KEPT[case]
    assert block(case[0], tuning).saved_bytes() == kept


def test_all_linear_adapters_in_bf16_save_no_activations() -> None:
    """A keeps the very input that the frozen linear would have kept; B's is new: 7 ranks."""
    whole, adapted = block("torchtitan", None), block("torchtitan", lora(ALL_LINEAR))
    assert adapted.saved_bytes() - whole.saved_bytes() == 7 * 4096 * 16 * 2


def test_fp32_adapters_cost_a_copy_of_each_input() -> None:
    """4 B for each input of the seven linears, which three and two of them share in bf16."""
    u, f = 4096 * 4096, 4096 * 11008
    narrow, wide = (
        block("torchtitan", lora(ALL_LINEAR, dtype=dtype)) for dtype in (None, DType.FP32)
    )
    ranks = 7 * 4096 * 16 * 2
    shared = 2 * (2 * u + f)  # both norms' outputs and the product; o's input stays: attention's
    assert wide.saved_bytes() - narrow.saved_bytes() == 4 * (6 * u + f) - shared + ranks


def test_dora_adds_a_magnitude_for_each_output() -> None:
    """And keeps both sides of two products: Wx and BAx of every linear (arXiv:2402.09353)."""
    plain = FineTuning(adapters=Adapters(rank=16, targets=ATTENTION))
    strong = FineTuning(adapters=Adapters(rank=16, targets=ATTENTION, dora=True))
    before, after = block("torchtitan", plain), block("torchtitan", strong)
    assert after.parameters - before.parameters == 4 * 4096
    rows = 3 * 4096 * 2  # the norm, the factor and what is one less, for each output
    assert after.saved_bytes() - before.saved_bytes() == 4 * (2 * 4096 * 4096 * 2 + rows)


@cache
def program(name: str) -> Program:
    return program_of(RUNS[name]["config"])


@pytest.mark.parametrize("name", NAMES)
def test_live_bytes_at_every_hook_boundary(name: str) -> None:
    verify(program(name))
    marks = [(m.mark, m.allocated) for m in replay(program(name)).marks]
    assert marks == [tuple(mark) for mark in RUNS[name]["marks"]]


@pytest.mark.parametrize("name", NAMES)
def test_peak_of_every_phase(name: str) -> None:
    ours = {(p.step, p.phase): p for p in replay(program(name), detail=False).phases}
    recorded = peaks_by_phase(RUNS[name])
    assert {key: peak["total"] for key, peak in recorded.items()} == {
        key: phase.allocated for key, phase in ours.items()
    }


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_slices_that_no_backward_frees_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"no backward reaches \(tok_embeddings\)"):
        program(name)
