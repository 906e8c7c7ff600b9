"""torchao's float8 linears under FSDP2 against real PyTorch's memory: the curve and the peaks.

Recorded with torchao 0.18 on fake CUDA tensors. Each linear makes an ``abs``, an fp32 copy, a
scaled and a clamped fp32 tensor and the float8 values of input, weight and gradient, for every
product anew. With the weights gathered in float8 every one of them keeps its scale, a number,
from one gathering to the next: here from the start, so 512 bytes too many before the first.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.kernels import Gemm
from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.program.instructions import Collective
from simulator.program.verify import verify
from tests.recorded import DATA, model_and_plan, peaks_by_phase, program_of

RUNS: dict[str, Any] = json.loads(gzip.decompress((DATA / "float8_runs.json.gz").read_bytes()))
LINEARS = 7
"""Of a layer."""


def scales(config: dict[str, Any]) -> int:
    """Bytes of the scales that gathered weights keep."""
    layers = config["n_layers"] or 4
    return layers * LINEARS * 512 if config["fp8"] == "all_gather" else 0


@pytest.mark.parametrize("name", RUNS)
def test_live_bytes_at_every_hook_boundary(name: str) -> None:
    config = RUNS[name]["config"]
    program = program_of(config)
    verify(program)
    last = f"pre_fwd.end:layers.{(config['n_layers'] or 4) - 1}"
    first = True
    for found, (mark, recorded) in zip(replay(program).marks, RUNS[name]["marks"], strict=True):
        assert found.mark == mark
        first = first and mark != last
        slack = scales(config) if first else 0
        assert 0 <= found.allocated - recorded <= slack, mark


@pytest.mark.parametrize("name", RUNS)
def test_peak_of_every_phase(name: str) -> None:
    phases = replay(program_of(RUNS[name]["config"]), detail=False).phases
    ours = {(p.step, p.phase): p.allocated for p in phases}
    peaks = {key: peak["total"] for key, peak in peaks_by_phase(RUNS[name]).items()}
    assert ours.keys() == peaks.keys()
    for key, recorded in peaks.items():
        before = key in ((0, "init"), (0, "forward"))
        slack = scales(RUNS[name]["config"]) if before else 0
        assert 0 <= ours[key] - recorded <= slack, key


def test_products_are_in_float8_but_for_the_head() -> None:
    model, plan = model_and_plan(RUNS["float8"]["config"])
    decoder = decoder_of(model, plan)
    products = [op.kernel for op in decoder.blocks[0].ops if isinstance(op.kernel, Gemm)]
    assert {kernel.dtype for kernel in products} == {DType.FP8}
    assert all(op.kernel.dtype is DType.BF16 for op in decoder.head.ops if op.kind == "mm")


def test_gathering_in_float8_moves_half_the_bytes_of_the_linears() -> None:
    def gathered(name: str) -> list[int]:
        model, plan = model_and_plan(RUNS[name]["config"])
        found = lower(decoder_of(model, plan), plan)
        return [
            i.bytes
            for _, i in found.instructions()
            if isinstance(i, Collective) and i.kind == "all_gather" and "own" in i.name
        ]

    whole, half = gathered("float8"), gathered("float8_gathered")
    linears = 256 * (256 + 128 + 128 + 256 + 3 * 768)
    norms = 2 * 256
    assert set(whole) - set(half) == {2 * (linears + norms)}
    assert set(half) - set(whole) == {linears + 2 * norms}


@pytest.mark.parametrize("change", [{"ws": 1}, {"cpu_offload": True}, {"reshard": 2}])
def test_gathering_in_float8_needs_something_to_gather(change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="use 'tensorwise'"):
        program_of({**RUNS["float8_gathered"]["config"], **change})
