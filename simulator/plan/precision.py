"""Precision recipes: the dtype of each thing a parameter costs memory for.

Bytes a parameter, as (stored parameter + gradient + master + two moments):

==================  ======================  =====
fp32                4 + 4 + 0 + 4 + 4          16
bf16-mixed-master   2 + 2 + 4 + 4 + 4          16
bf16-no-master      2 + 2 + 0 + 4 + 4          12
fsdp-mixed          4 + 4 + 0 + 4 + 4          16  (the fp32 shards are the master)
megatron-bf16       2 + 4 + 4 + 4 + 4          18
pure-bf16           2 + 2 + 0 + 2 + 2           8
autocast            4 + 4 + 0 + 4 + 4          16  (fp32 throughout; matrix products in bf16)
==================  ======================  =====
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.plan.plan import Precision

_FP32, _BF16 = DType.FP32, DType.BF16
_ADAM_MOMENTS = 2


def _recipe(
    name: str,
    *,
    parameters: DType,
    compute: DType,
    gradients: DType,
    reduce: DType,
    moments: DType,
    master: DType | None = None,
    autocast: DType | None = None,
) -> Precision:
    return Precision(
        name=name,
        parameters=parameters,
        compute=compute,
        gradients=gradients,
        reduce=reduce,
        master=master,
        moments=moments,
        autocast=autocast,
    )


RECIPES: dict[str, Precision] = {
    recipe.name: recipe
    for recipe in (
        _recipe(
            "fp32",
            parameters=_FP32,
            compute=_FP32,
            gradients=_FP32,
            reduce=_FP32,
            moments=_FP32,
        ),
        _recipe(
            "bf16-mixed-master",
            parameters=_BF16,
            compute=_BF16,
            gradients=_BF16,
            reduce=_BF16,
            master=_FP32,
            moments=_FP32,
        ),
        _recipe(
            "bf16-no-master",
            parameters=_BF16,
            compute=_BF16,
            gradients=_BF16,
            reduce=_BF16,
            moments=_FP32,
        ),
        _recipe(
            "fsdp-mixed",
            parameters=_FP32,
            compute=_BF16,
            gradients=_FP32,
            reduce=_FP32,
            moments=_FP32,
        ),
        _recipe(
            "megatron-bf16",
            parameters=_BF16,
            compute=_BF16,
            gradients=_FP32,
            reduce=_FP32,
            master=_FP32,
            moments=_FP32,
        ),
        _recipe(
            "pure-bf16",
            parameters=_BF16,
            compute=_BF16,
            gradients=_BF16,
            reduce=_BF16,
            moments=_BF16,
        ),
        _recipe(
            "autocast",
            parameters=_FP32,
            compute=_FP32,
            gradients=_FP32,
            reduce=_FP32,
            moments=_FP32,
            autocast=_BF16,
        ),
    )
}
"""Every recipe by the name a scenario uses."""

_UNCAST = {
    "fsdp-mixed": "autocast",
    "bf16-mixed-master": "autocast",
    "bf16-no-master": "pure-bf16",
    "megatron-bf16": "autocast",
}

_SHARDED = dict.fromkeys(("bf16-mixed-master", "bf16-no-master", "megatron-bf16"), "fsdp-mixed")

_MASTERED = dict.fromkeys(
    ("bf16-no-master", "fsdp-mixed", "megatron-bf16", "pure-bf16", "autocast"), "bf16-mixed-master"
)

NEAREST: dict[str, dict[str, str]] = {
    "fsdp2": _SHARDED,
    "fsdp1": _SHARDED,
    "single": _UNCAST,
    "ddp": _UNCAST,
    "deepspeed": _MASTERED,
}
"""By framework: the recipes it cannot run, each with the nearest one that it can.

FSDP hands the optimizer the stored shards themselves, so a gradient and its moments have the
dtype of the stored parameter, and no master copy stands beside it (torch
``distributed/fsdp/_fully_shard/_fsdp_param.py``, ``_flat_param.py``). Without FSDP nothing casts a
parameter. DeepSpeed casts the module's own parameters and steps an fp32 copy of them
(``deepspeed/runtime/zero/stage_1_and_2.py``).
"""


def narrowest(framework: str) -> tuple[str, ...]:
    """The recipes that compute in 16 bits, the nearest to ``fp32`` first."""
    stored = "fsdp-mixed" if casts(framework) else "pure-bf16"
    wanted = (stored, "autocast", "bf16-mixed-master")
    return tuple(recipe for recipe in wanted if runs_under(recipe, framework))


def casts(framework: str) -> bool:
    """Whether ``framework`` has a policy that computes in another dtype than it stores."""
    return runs_under("fsdp-mixed", framework)


def runs_under(recipe: str, framework: str) -> bool:
    """Whether ``framework`` can run the recipe at all."""
    return recipe in RECIPES and recipe not in NEAREST.get(framework, {})


def nearest(recipe: str, framework: str) -> str:
    """The recipe closest to ``recipe`` that ``framework`` can run (itself where it can)."""
    return NEAREST.get(framework, {}).get(recipe, recipe)


def state_bytes(precision: Precision, parameters: int) -> dict[str, int]:
    """Bytes of the persistent state of ``parameters`` parameters under Adam, by kind.

    ``moments`` counts both. Nothing is sharded, padded or gathered here.

    >>> sum(state_bytes(RECIPES["bf16-mixed-master"], 7_000_000_000).values())
    112000000000
    """
    master = precision.master.itemsize if precision.master else 0
    return {
        "parameters": parameters * precision.parameters.itemsize,
        "gradients": parameters * precision.gradients.itemsize,
        "master": parameters * master,
        "moments": parameters * _ADAM_MOMENTS * precision.moments.itemsize,
    }


def bytes_per_parameter(precision: Precision) -> int:
    """Bytes of persistent state that one parameter costs under Adam."""
    return sum(state_bytes(precision, 1).values())
