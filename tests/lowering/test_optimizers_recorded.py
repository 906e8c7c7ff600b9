"""Optimizers on plain tensors, against real ones: what they hold and what a step adds at its peak.

torch 2.13's ran on fake CUDA tensors of four Llama-7B layers (Adafactor's on real CPU tensors of
smaller ones), bitsandbytes 0.50 made its states without stepping. Figures are multiples of the
parameters' bytes P to four places, or three.
"""

from __future__ import annotations

from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.shards import Shard
from simulator.memory.ledger import replay
from simulator.model.graph import Weight
from simulator.plan.plan import Hyper
from simulator.program.instructions import Alloc, Category
from tests.lowering.states import steps_over
from tests.strategies import MIXED, PURE

LAYER = [*[(4096, 4096)] * 4, *[(11008, 4096)] * 2, (4096, 11008), *[(4096,)] * 2]
SHAPES: list[tuple[int, ...]] = LAYER * 4
ELEMENTS = 809_533_440
PLAIN, MOMENTUM = Hyper(momentum=0.0), Hyper()
DECAY = Hyper(weight_decay=0.1)

STEPS: dict[str, tuple[tuple[str, str], Hyper, float, float]] = {
    "adamw_foreach": (("adamw", "foreach"), Hyper(), 2.0, 1.0),
    "adamw_fused": (("adamw", "fused"), Hyper(), 2.0, 0.0),
    "adamw_loop": (("adamw", "for-loop"), Hyper(), 2.0, 0.1671),
    "adamw_foreach_amsgrad": (("adamw", "foreach"), Hyper(amsgrad=True), 3.0, 1.0),
    "adam_foreach": (("adam", "foreach"), Hyper(), 2.0, 1.0),
    "adam_foreach_wd": (("adam", "foreach"), DECAY, 2.0, 1.0),
    "adam_fused": (("adam", "fused"), Hyper(), 2.0, 0.0),
    "sgd_foreach": (("sgd", "foreach"), PLAIN, 0.0, 0.0),
    "sgd_mom_foreach": (("sgd", "foreach"), MOMENTUM, 1.0, 0.0),
    "sgd_mom_loop": (("sgd", "for-loop"), MOMENTUM, 1.0, 0.0),
    "sgd_mom_wd_foreach": (("sgd", "foreach"), DECAY, 1.0, 1.0),
    "muon": (("muon", "fused"), Hyper(), 1.0, 0.1321),
}
"""By the recording's name: states and temporaries, both over P."""


def measured(
    choice: tuple[str, str], shapes: list[tuple[int, ...]], hyper: Hyper, precision: Any = MIXED
) -> tuple[int, list[int]]:
    """Bytes of states, and those that a first and a second step hold beside them."""
    report = replay(steps_over(choice, shapes, precision, hyper), detail=False)
    states = report.resident[0]
    peaks = {p.step: p.allocated for p in report.phases if p.phase == "optimizer"}
    return states, [max(0, peaks.get(step, 0) - states) for step in (0, 1)]


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_four_layers(name: str) -> None:
    choice, hyper, states, temporaries = STEPS[name]
    total = 4 * ELEMENTS
    shapes = [shape for shape in SHAPES if len(shape) == 2 or name != "muon"]  # it had no vectors
    found, peaks = measured(choice, shapes, hyper)
    assert found / total == pytest.approx(states, abs=1e-4)
    for peak in peaks:
        assert peak / total == pytest.approx(temporaries, abs=5e-5)


@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_steps_in_bf16(way: str) -> None:
    states, peaks = measured(("adamw", way), SHAPES, Hyper(), PURE)
    assert states / (2 * ELEMENTS) == pytest.approx(2.0, abs=1e-4)
    assert [round(peak / (2 * ELEMENTS), 3) for peak in peaks] == [way == "foreach"] * 2


@pytest.mark.parametrize(
    ("way", "shapes", "states", "over_largest"),
    [
        ("for-loop", [(512, 512)], 4096, 1.004),
        ("foreach", [(512, 512)], 4096, 1.0),
        (
            "for-loop",
            [*[(512, 512)] * 4, *[(1376, 512)] * 2, (512, 1376), *[(512,)] * 2],
            43136,
            2.003,
        ),
        (
            "foreach",
            [*[(512, 512)] * 4, *[(1376, 512)] * 2, (512, 1376), *[(512,)] * 2],
            43136,
            4.49,
        ),
    ],
)
def test_adafactor(
    way: str, shapes: list[tuple[int, ...]], states: int, over_largest: float
) -> None:
    """Its recording counts states unrounded, and four bytes a step counter, on the host."""
    program = steps_over(("adafactor", way), shapes, MIXED, Hyper())
    made = [
        instruction.tensor.requested
        for _, instruction in program.instructions()
        if isinstance(instruction, Alloc) and instruction.tensor.category is Category.OPTIMIZER
    ]
    assert sum(made) == states
    largest = 4 * max(shape[0] * shape[-1] for shape in shapes if len(shape) > 1)
    _, peaks = measured(("adafactor", way), shapes, Hyper())
    for peak in peaks:
        assert peak / largest == pytest.approx(over_largest, rel=5e-3)


QMAP, U8, F32 = (256,), DType.UINT8, DType.FP32
BITS_AND_BYTES: dict[str, dict[tuple[int, ...], dict[str, tuple[tuple[int, ...], DType]]]] = {
    "adamw-8bit": {
        (4096, 1024): {
            "state1": ((4096, 1024), U8),
            "state2": ((4096, 1024), U8),
            "absmax1": ((16384,), F32),
            "absmax2": ((16384,), F32),
        },
        (4095,): {"state1": ((4095,), F32), "state2": ((4095,), F32)},
        (4096,): {
            "state1": ((4096,), U8),
            "state2": ((4096,), U8),
            "absmax1": ((16,), F32),
            "absmax2": ((16,), F32),
        },
    },
    "lion-8bit": {
        (4096, 1024): {"state1": ((4096, 1024), U8), "absmax1": ((16384,), F32)},
        (4095,): {"state1": ((4095,), F32)},
        (4096,): {"state1": ((4096,), U8), "absmax1": ((16,), F32)},
    },
}


@pytest.mark.parametrize("name", BITS_AND_BYTES)
def test_bitsandbytes(name: str) -> None:
    """States by shape of the parameter; the maps of 256 fp32 are the optimizer's."""
    (group,) = OPTIMIZERS[name, "fused"](name, MIXED, Hyper())
    shards = [
        Shard(weight=Weight(name="w", shape=shape, module="layers.*"), shape=shape, world=1)
        for shape in BITS_AND_BYTES[name]
    ]
    for shard in shards:
        made = dict(op.makes for op in group.step(shard, True) if op.makes)
        found = {key: (tensor.shape, tensor.dtype) for key, tensor in made.items()}
        assert found == BITS_AND_BYTES[name][shard.weight.shape]
    maps = [op.makes[1] for op in group.once(shards) if op.makes]
    states = 2 if name == "adamw-8bit" else 1
    assert [(tensor.shape, tensor.dtype) for tensor in maps] == [(QMAP, F32)] * states


def test_paged_states_below_a_hundred_thousand_elements_are_as_if_not_paged() -> None:
    weight = Weight(name="w", shape=(4096,), module="layers.*")
    shards = [Shard(weight=weight, shape=(rows,), world=1) for rows in (99_999, 100_000)]
    (group,) = OPTIMIZERS["adamw-paged-8bit", "fused"]("adamw-paged-8bit", MIXED, Hyper())
    below, above = ([op.makes[0] for op in group.step(s, True) if op.makes] for s in shards)
    assert below == ["state1", "state2", "absmax1", "absmax2"]
    assert above == ["absmax1", "absmax2"]
