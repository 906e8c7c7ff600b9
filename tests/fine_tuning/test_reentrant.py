"""Why adapters under FSDP1 cost more than on one GPU: who holds a frozen unit's input.

torch 2.13's ``_register_post_backward_reshard_only_hook`` puts a hook on the inputs of a unit
without trained weights, and ``register_multi_grad_hook`` has it refer to their gradients' nodes.
Where a re-entrant checkpoint detached the input, that node refers to it: input and gradient, two
bytes an element each, stay until ``_finalize_params`` removes the hook at the end of backward.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.fine_tuning import Adapters, FineTuning
from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.model.presets import PRESETS
from simulator.plan.plan import Fsdp, Parallelism, Plan, Training
from simulator.plan.precision import RECIPES

SMALL = {"hidden": 512, "ffn": 1024, "vocab": 512, "heads": 8, "kv_heads": 8, "head_dim": 64}
MODEL = replace(PRESETS["llama-2-7b"], **SMALL)
TOKENS = 4096
UNIT = TOKENS * MODEL.hidden
TUNING = FineTuning(adapters=Adapters(rank=8, targets=("q", "v"), dtype=DType.FP32))
MORE = 4
"""Layers between the two models that are compared."""


def peak(layers: int, framework: str, tuning: FineTuning | None, **training: Any) -> int:
    """The highest of backward, less what a layer holds of shards and states at all times."""
    wrap = {"fsdp1": "peft" if tuning else "block"}.get(framework, "none")
    plan = Plan(
        parallelism=Parallelism(
            framework=framework,
            dp_shard=1 if framework == "single" else 8,
            fsdp=Fsdp(wrap=wrap, use_orig_params=False),
        ),
        training=Training(
            **{"seq_len": TOKENS, "micro_batch": 1, "precision": RECIPES["pure-bf16"]},
            **{"activation_checkpointing": "full", "fine_tuning": tuning, **training},
        ),
    )
    config = replace(MODEL, layers=layers)
    phases = replay(lower(decoder_of(config, plan), plan, steps=1), detail=False).phases
    start = next(p.allocated for p in phases if p.phase == "init")
    return next(p.allocated for p in phases if p.phase == "backward") - start


def a_layer(framework: str, tuning: FineTuning | None, **training: Any) -> float:
    """Bytes an element of the residual stream that one more layer costs at the peak."""
    small, large = (peak(n, framework, tuning, **training) for n in (MORE, 2 * MORE))
    return (large - small) / MORE / UNIT


@pytest.mark.parametrize(
    ("framework", "tuning", "reentrant", "each"),
    [
        ("fsdp1", TUNING, True, 4),  # the layer's input, and its gradient
        ("fsdp1", TUNING, False, 2),  # no input is a leaf
        ("fsdp1", None, True, 2),  # its hook is on its own weights
        ("single", TUNING, True, 2),
    ],
)
def test_what_one_more_layer_costs(
    framework: str, tuning: FineTuning | None, reentrant: bool, each: int
) -> None:
    found = a_layer(framework, tuning, checkpoint_reentrant=reentrant)
    assert found == pytest.approx(each, abs=0.2)  # gradients and adapters, besides


def test_none_of_it_outlives_backward() -> None:
    small, large = (
        replay(lower(decoder_of(config, plan), plan, steps=2)).marks[-1].allocated
        for config, plan in ((replace(MODEL, layers=n), _plan()) for n in (2, 4))
    )
    assert large - small < 2 * UNIT


def _plan() -> Plan:
    return Plan(
        parallelism=Parallelism(
            framework="fsdp1", dp_shard=8, fsdp=Fsdp(wrap="peft", use_orig_params=False)
        ),
        training=Training(
            seq_len=TOKENS,
            micro_batch=1,
            precision=RECIPES["pure-bf16"],
            activation_checkpointing="full",
            checkpoint_reentrant=True,
            fine_tuning=TUNING,
        ),
    )
