"""Optimizers: what ``step()`` allocates and launches. One file a family, joined here."""

from __future__ import annotations

from collections.abc import Callable

from simulator.lowering.optimizer import adafactor, adam, bitsandbytes, muon, sgd, torchao
from simulator.lowering.optimizer.op import Optimizer
from simulator.plan.plan import Hyper, Precision

Make = Callable[[str, Precision, Hyper], Optimizer]
"""From an optimizer's name, dtypes and hyper-parameters to what it does."""

OPTIMIZERS: dict[tuple[str, str], Make] = {
    ("adamw", "foreach"): adam.foreach,
    ("adamw", "for-loop"): adam.for_loop,
    ("adamw", "fused"): adam.fused,
    ("adam", "foreach"): adam.foreach,
    ("adam", "for-loop"): adam.for_loop,
    ("adam", "fused"): adam.fused,
    ("sgd", "foreach"): sgd.foreach,
    ("sgd", "for-loop"): sgd.for_loop,
    ("sgd", "fused"): sgd.fused,
    ("adafactor", "for-loop"): adafactor.for_loop,
    ("adafactor", "foreach"): adafactor.foreach,
    ("muon", "foreach"): muon.with_adamw(adam.foreach),
    ("muon", "for-loop"): muon.with_adamw(adam.for_loop),
    ("muon", "fused"): muon.with_adamw(adam.fused),
    ("adamw-8bit", "fused"): bitsandbytes.blockwise,
    ("adamw-paged-8bit", "fused"): bitsandbytes.blockwise,
    ("lion", "fused"): bitsandbytes.blockwise,
    ("lion-8bit", "fused"): bitsandbytes.blockwise,
    ("adamw-torchao-8bit", "fused"): torchao.compiled,
    ("adamw-4bit", "fused"): torchao.compiled,
    ("adamw-fp8", "fused"): torchao.compiled,
}
"""(name, implementation) -> constructor; of one name, the first is the default. Muon's is that of
the AdamW beside it."""

_IN_PLACE = "DTensor cannot square a norm over ranks in place, as it does"
_NO_RULE = "DTensor has no rule for its kernel"

DTENSOR_REFUSES: dict[tuple[str, str], tuple[str, str]] = {
    ("sgd", "fused"): (f"{_NO_RULE}, _fused_sgd_", "sgd foreach"),
    ("adafactor", "for-loop"): (_IN_PLACE, "adamw-torchao-8bit"),
    ("adafactor", "foreach"): (_IN_PLACE, "adamw-torchao-8bit"),
    ("adamw-8bit", "fused"): (_NO_RULE, "adamw-torchao-8bit"),
    ("adamw-paged-8bit", "fused"): (_NO_RULE, "adamw-torchao-8bit"),
    ("lion", "fused"): (_NO_RULE, "sgd"),
    ("lion-8bit", "fused"): (_NO_RULE, "adamw-torchao-8bit"),
}
"""What fails on FSDP2's sharded parameters (torch 2.13): why, and the nearest that runs."""


_COMPILED = "what its compiled update holds for itself is not counted"
LEFT_OUT: dict[str, str] = {
    "adamw-paged-8bit": "states of 100,000 elements and more lie in managed memory, which is not "
    "counted: on the device as far as there is room, else on the host",
    "adamw-torchao-8bit": _COMPILED,
    "adamw-4bit": _COMPILED,
    "adamw-fp8": _COMPILED,
}
"""What the answers about an optimizer leave out."""


def default_implementation(name: str, framework: str = "") -> str:
    """How an optimizer runs where nobody says; under DeepSpeed Adam is its own ``FusedAdam``."""
    if framework == "deepspeed" and name in ("adam", "adamw"):
        return "fused"
    return next(way for known, way in OPTIMIZERS if known == name)


def refusal(name: str, implementation: str, framework: str) -> str | None:
    """Why a framework's parameters can't go through an optimizer, and what is nearest."""
    found = DTENSOR_REFUSES.get((name, implementation)) if framework == "fsdp2" else None
    if framework in ("fsdp1", "deepspeed") and name == "muon":
        found = "its shards are one-dimensional", "adamw"
    if found is None:
        return None
    why, nearest = found
    return (
        f"{framework} cannot run {name} {implementation}: {why}; the nearest that it can: {nearest}"
    )
