"""What options saved in public runs against what they save here: the same sign, within a third.

A difference of two runs of one source leaves out what both share and nobody states.
"""

from __future__ import annotations

from functools import cache

import pytest

from simulator.data import data_dir
from simulator.run import run
from simulator.scenario import Scenario, load_cases, with_changes
from simulator.study.cases import BOUNDS
from simulator.trace.parts import MemoryResult
from simulator.trace.result import summarise

PUBLISHED = data_dir("scenarios") / "published"
GiB = 2**30


@cache
def cases(file: str) -> dict[str, Scenario]:
    """The cases of a set that can be expressed."""
    found = load_cases(PUBLISHED / f"{file}.yaml")
    assert found is not None
    return {name: case for name, case in found.items() if isinstance(case, Scenario)}


@cache
def memory(file: str, name: str) -> MemoryResult:
    return summarise(run(cases(file)[name], memory_only=True)).memory


def measured(file: str, name: str) -> float:
    found = cases(file)[name].measured
    assert found is not None
    peak = found.peak_allocated or found.peak_active or found.peak_reserved
    assert peak is not None
    return peak


FMS = "fms-acceleration"
SAVINGS = {
    "fused linear loss, 4": ("l3-8b-lora-foak-1gpu-bs4", "l3-8b-lora-liger-1gpu-bs4"),
    "fused linear loss, 8": ("l3-8b-lora-foak-1gpu-bs8", "l3-8b-lora-liger-1gpu-bs8"),
    "LoRA, Mistral": ("mistral7b-full-foak-1gpu-bs8", "mistral7b-lora-foak-1gpu-bs8"),
    "LoRA, Llama, 4": ("l3-8b-full-liger-1gpu-bs4", "l3-8b-lora-liger-1gpu-bs4"),
    "LoRA, Llama, 8": ("l3-8b-full-liger-1gpu-bs8", "l3-8b-lora-liger-1gpu-bs8"),
    "4-bit weights, 8": ("l3-8b-lora-liger-1gpu-bs8", "l3-8b-qlora-bnbliger-1gpu-bs8"),
    "4-bit weights, 16": ("l3-8b-lora-liger-1gpu-bs16", "l3-8b-qlora-bnbliger-1gpu-bs16"),
    "half the batch, LoRA": ("mistral7b-lora-foak-1gpu-bs16", "mistral7b-lora-foak-1gpu-bs8"),
}


@pytest.mark.parametrize("option", SAVINGS)
def test_savings_of_fms(option: str) -> None:
    more, less = (f"fms-b-{name}" for name in SAVINGS[option])
    saved = measured(FMS, more) - measured(FMS, less)
    ours = memory(FMS, more).peak_allocated_bytes - memory(FMS, less).peak_allocated_bytes
    assert saved > 0
    assert ours == pytest.approx(saved, rel=1 / 3)


TUNE = "torchtune-3b-ladder"
LADDER = ["packed", "compile", "chunked", "checkpointing", "optimizer-in-backward"]


@pytest.mark.parametrize("row", range(1, len(LADDER)))
def test_savings_of_torchtunes_ladder(row: int) -> None:
    """Each row adds one option; no block is marked on one GPU, so active is what is allocated."""
    more, less = (f"tune-3b-{name}" for name in LADDER[row - 1 : row + 1])
    saved = measured(TUNE, more) - measured(TUNE, less)
    ours = memory(TUNE, more).peak_allocated_bytes - memory(TUNE, less).peak_allocated_bytes
    assert saved > 0
    assert ours == pytest.approx(saved, rel=1 / 3)


@pytest.mark.parametrize("name", LADDER)
def test_peaks_of_torchtunes_ladder(name: str) -> None:
    """The widest is a tied head under checkpointing: what the summed gradients need."""
    peak = measured(TUNE, f"tune-3b-{name}")
    assert memory(TUNE, f"tune-3b-{name}").peak_allocated_bytes == pytest.approx(peak, rel=0.021)


def test_a_chunked_loss_saves_as_much_as_torchtitan_saw() -> None:
    """Both are reserved there and allocated here; the difference is one of activations."""
    file = "torchtitan-fsdp2-eager"
    eager, chunked = "ttpr996-loss-eager", "ttpr996-loss-chunked"
    saved = measured(file, eager) - measured(file, chunked)
    ours = memory(file, eager).peak_allocated_bytes - memory(file, chunked).peak_allocated_bytes
    assert ours == pytest.approx(saved, rel=1 / 3)


def test_a_batch_twice_as_large_costs_nothing_where_the_optimizer_peaks() -> None:
    """Pure bf16: 2 B weights, 2 gradients, 4 moments, and foreach's copy of 2."""
    small, large = (f"fms-a-mistral7b-full-hf-1gpu-bs{size}" for size in (4, 8))
    assert measured(FMS, large) == pytest.approx(measured(FMS, small), rel=1e-4)
    for name in (small, large):
        peak = memory(FMS, name)
        assert (peak.peak_phase, peak.peak_allocated_bytes) == (
            "optimizer",
            pytest.approx(10 * 7_241_732_096, rel=1e-4),
        )


def test_foreach_costs_one_more_copy_of_the_parameters() -> None:
    base = cases(FMS)["fms-b-l3-8b-full-liger-1gpu-bs4"]
    fused = with_changes(base, {"training.optimizer.implementation": "fused"})
    step = {
        scenario.plan.training.optimizer_implementation: max(
            phase.peak_allocated_bytes
            for phase in summarise(run(scenario, memory_only=True)).memory.phases
            if phase.phase == "optimizer"
        )
        for scenario in (base, fused)
    }
    assert step["foreach"] - step["fused"] == pytest.approx(2 * 8_030_261_248, rel=1e-4)


def test_allocated_peaks_of_one_gpu_are_within_their_bound() -> None:
    for name, case in cases(FMS).items():
        found = case.measured
        if found and found.peak_allocated and case.plan.parallelism.framework == "single":
            ours = memory(FMS, name).peak_allocated_bytes
            assert ours == pytest.approx(found.peak_allocated, rel=BOUNDS["allocated"] / 100), name


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_case_names_its_source_and_how_far_to_trust_it(path: object) -> None:
    found = load_cases(str(path))
    assert found
    for name, case in found.items():
        known = case.measured
        assert known is not None, name
        assert known.source, name
        assert known.trust in ("A", "B", "C"), name
