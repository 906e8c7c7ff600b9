from __future__ import annotations

from typing import Any

import pytest

import simulator
from simulator.errors import ScenarioError, UserError
from simulator.run import simulate
from simulator.scenario import load
from simulator.study.compare import compare, variants_of
from tests.study.test_no_dead_settings import BASE


def test_the_parts_of_a_difference_add_up_to_it() -> None:
    found = compare(BASE, **{"training.micro_batch": 4, "parallelism.fsdp.wrap": "block"})
    (change,) = found.changes
    assert sum(cause.difference for cause in change.memory) == (
        change.difference("peak_allocated_bytes")
    )
    assert sum(cause.difference for cause in change.time) == pytest.approx(
        change.difference("step_time_s")
    )
    sizes = [abs(cause.difference) for cause in change.memory]
    assert sizes == sorted(sizes, reverse=True)
    assert ("training.micro_batch", "1", "4") in change.settings


def test_each_side_is_what_simulate_says() -> None:
    found = compare(BASE, **{"training.micro_batch": 2})
    assert found.base.result == simulate(BASE)
    assert found.changes[0].run.result == simulate(BASE, **{"training.micro_batch": 2})


def test_two_scenarios() -> None:
    found = compare(BASE, {**BASE, "name": "other", "cluster": {"topology": "dgx-h100"}})
    (change,) = found.changes
    assert change.run.name == "other"
    assert change.settings == (("cluster.topology", "dgx-a100", "dgx-h100"),)
    assert [cause.part for cause in change.memory] == ["workspaces"]  # cuBLAS' differ
    assert (change.difference("step_time_s") or 0) < 0


def test_memory_only_has_no_times() -> None:
    change = compare(BASE, memory_only=True, **{"training.micro_batch": 2}).changes[0]
    assert change.time == ()
    assert change.to_json()["differences"]["step_time_s"] is None  # type: ignore[index]


def test_a_recipe_differs_by_its_dtypes() -> None:
    change = compare(BASE, memory_only=True, **{"training.precision.reduce": "bf16"}).changes[0]
    assert change.settings == (("training.precision.reduce", "fp32", "bf16"),)


def test_there_must_be_a_second() -> None:
    with pytest.raises(UserError, match="second scenario"):
        compare(BASE)


def test_a_what_if_is_a_change_and_a_wrong_one_is_named() -> None:
    entries = [{"name": "twice", "set": {"training.micro_batch": 2}}]
    ((name, scenario),) = variants_of(load({**BASE, "what_if": entries}))
    assert (name, scenario.plan.training.micro_batch) == ("twice", 2)
    entries = [{"name": "none", "set": {"training.micro_batch": 0}}]
    with pytest.raises(ScenarioError, match=r"what_if\[0\].set: training.micro_batch: expected"):
        load({**BASE, "what_if": entries})
    with pytest.raises(ScenarioError, match="what_if by link"):
        load({**BASE, "what_if": [{"name": "x", "link": ["a", "b"], "rate": 0.5}]})


def test_it_is_public() -> None:
    assert simulator.compare is compare


@pytest.mark.parametrize("steps", [0, 1, "3", 2.5, True, -1])
@pytest.mark.parametrize("verb", [simulate, compare])
def test_steps_are_a_whole_number(verb: Any, steps: Any) -> None:
    with pytest.raises(UserError, match="steps: a whole number of at least 2"):
        verb(BASE, steps=steps, memory_only=True, **{"training.micro_batch": 2})
