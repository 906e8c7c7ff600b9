"""Other frameworks than FSDP2 against real PyTorch: live bytes after each part of a step, and the
peak of every phase, to the byte."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.plan.plan import Ddp
from simulator.program.program import Program
from simulator.program.verify import verify
from tests.recorded import DATA, model_and_plan, peaks_by_phase, program_of

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


PEAKS: dict[str, Any] = json.loads((DATA / "recorded_peaks.json").read_text())
"""Of whole runs, as another recorder has them: totals of the phases alone, less the batch."""

USUAL: dict[str, Any] = {
    "model": "titan:llama2_7b", "ws": 8, "mb": 1, "seq": 4096, "ac": "full", "reshard": True,
    "param_dtype": "bf16", "reduce_dtype": "fp32", "master": "fp32", "wrap": "block_root",
    "opt": "adamw_fused", "clip": False, "fused_rms": True, "gqa_native": False, "n_layers": None,
    "grad_accum": 1, "ga_sync": True, "reshard_after_backward": True, "hsdp": None,
    "cpu_offload": False, "prefetch_fwd": 0, "autocast": False, "attn": "flash",
}  # fmt: skip


def peaks_less_batch(program: Program) -> dict[str, int]:
    """The peak of each phase of the first two steps, the batch not counted."""
    found = {}
    for peak in replay(program).phases:
        found[f"{peak.step} {peak.phase}"] = peak.allocated - peak.breakdown.get("inputs", 0)
    return found


@pytest.mark.parametrize("name", sorted(PEAKS["ddp"]))
def test_peaks_of_ddp(name: str) -> None:
    """Four layers; views of the buckets, and buckets of other sizes, in fp32 and in bf16."""
    run = PEAKS["ddp"][name]
    stored = {"master": "bf16" if run["bf16"] else "fp32", "autocast": not run["bf16"]}
    dtypes = {"param_dtype": None, "reduce_dtype": None, **stored}
    model, plan = model_and_plan({**USUAL, "framework": "ddp", "n_layers": 4, **dtypes})
    ddp = Ddp(bucket_cap=run["bucket_cap_mb"] * 2**20, gradient_as_bucket_view=run["views"])
    plan = replace(plan, parallelism=replace(plan.parallelism, ddp=ddp))
    found = peaks_less_batch(lower(decoder_of(model, plan), plan, 2))
    assert {phase: found[phase] for phase in run["peaks"]} == run["peaks"]


@pytest.mark.parametrize("name", sorted(PEAKS["fsdp1"]))
def test_peaks_of_fsdp1(name: str) -> None:
    """Each prefetch of backward and forward's own, with and without checkpointing."""
    run = PEAKS["fsdp1"][name]
    config = run["config"]
    own = {key: config[key] for key in ("mb", "seq", "ac")}
    found = peaks_less_batch(
        program_of(
            {
                **USUAL,
                **own,
                "framework": "fsdp1",
                "model": f"titan:{config['model']}",
                "prefetch_fwd": int(config["fwd_prefetch"]),
                "options": {"backward_prefetch": config["bwd"]},
            }
        )
    )
    assert {phase: found[phase] for phase in run["peaks"]} == run["peaks"]
