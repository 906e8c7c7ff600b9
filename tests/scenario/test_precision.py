from __future__ import annotations

import pytest

from simulator.errors import ScenarioError
from simulator.memory.ledger import replay
from simulator.plan.precision import (
    RECIPES,
    bytes_per_parameter,
    nearest,
    runs_under,
    state_bytes,
)
from simulator.program.instructions import HostWait
from simulator.run import program_of
from tests.scenario.conftest import TINY, Load

SEVEN_BILLION = 7_000_000_000
GB = 10**9


def test_bf16_mixed_master_is_112_gb_for_7e9_parameters() -> None:
    state = state_bytes(RECIPES["bf16-mixed-master"], SEVEN_BILLION)
    assert state == {
        "parameters": 14 * GB,
        "gradients": 14 * GB,
        "master": 28 * GB,
        "moments": (28 + 28) * GB,
    }
    assert sum(state.values()) == 112 * GB
    assert sum(state.values()) / 64 == 1.75 * GB


def test_bf16_no_master_is_84_gb_for_7e9_parameters() -> None:
    state = state_bytes(RECIPES["bf16-no-master"], SEVEN_BILLION)
    assert state == {
        "parameters": 14 * GB,
        "gradients": 14 * GB,
        "master": 0,
        "moments": 56 * GB,
    }
    assert sum(state.values()) == 84 * GB


def test_fsdp_mixed_keeps_no_master_beside_its_fp32_shards() -> None:
    state = state_bytes(RECIPES["fsdp-mixed"], SEVEN_BILLION)
    assert state == {
        "parameters": 28 * GB,
        "gradients": 28 * GB,
        "master": 0,
        "moments": 56 * GB,
    }


@pytest.mark.parametrize(
    ("recipe", "size"),
    [
        ("fp32", 16),
        ("bf16-mixed-master", 16),
        ("bf16-no-master", 12),
        ("fsdp-mixed", 16),
        ("megatron-bf16", 18),
        ("pure-bf16", 8),
    ],
)
def test_bytes_per_parameter(recipe: str, size: int) -> None:
    assert bytes_per_parameter(RECIPES[recipe]) == size
    assert RECIPES[recipe].name == recipe


@pytest.mark.parametrize("recipe", ["bf16-mixed-master", "bf16-no-master", "megatron-bf16"])
def test_what_fsdp2_cannot_run_has_a_nearest_that_it_can(recipe: str) -> None:
    assert not runs_under(recipe, "fsdp2")
    assert nearest(recipe, "fsdp2") == "fsdp-mixed"
    assert runs_under("fsdp-mixed", "fsdp2")


@pytest.mark.parametrize("recipe", ["fsdp-mixed", "pure-bf16", "fp32"])
def test_what_fsdp2_runs_is_its_own_nearest(recipe: str) -> None:
    assert runs_under(recipe, "fsdp2")
    assert nearest(recipe, "fsdp2") == recipe


def test_a_loss_scaler_costs_eight_bytes_and_a_wait(load_text: Load) -> None:
    """Two scalars stay, and the host asks once a step whether a gradient has overflowed."""
    plain, scaled = (
        load_text(TINY, [f"training.precision={{compute: fp16, loss_scaling: {flag}}}"])
        for flag in ("false", "true")
    )
    assert any("fp16 needs a loss scaler" in text for text in plain.warnings)
    assert not scaled.warnings
    programs = [program_of(each) for each in (plain, scaled)]
    waits = [sum(isinstance(i, HostWait) for _, i in p.instructions()) for p in programs]
    assert waits == [0, 2]
    resident = [replay(program).resident[-1] for program in programs]
    assert resident[1] - resident[0] == 2 * 512


def test_gradients_in_fp16_cannot_be_unscaled(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="GradScaler refuses to unscale fp16 gradients"):
        load_text(TINY, ["training.precision={parameters: fp16, loss_scaling: true}"])


@pytest.mark.parametrize(
    ("more", "words"),
    [("training.optimizer=muon", "with muon"), ("offload.parameters=host", "on the host")],
)
def test_where_no_loss_scaler_is_simulated_it_is_refused(
    load_text: Load, more: str, words: str
) -> None:
    with pytest.raises(ScenarioError, match=f"loss_scaling: is not supported .*{words}"):
        load_text(TINY, ["training.precision={compute: fp16, loss_scaling: true}", more])
