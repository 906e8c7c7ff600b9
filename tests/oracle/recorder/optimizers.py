"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from torch import nn
from torch.optim import SGD, Adafactor, Adam, AdamW, Muon, Optimizer

RATE = 1e-4

LOOP: dict[str, Any] = {"foreach": False, "fused": False}


def _made(kind: Any, **options: Any) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    return partial(kind, lr=RATE, **options)


class Together:
    """Optimizers that step one after the other."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def state(self) -> Mapping[nn.Parameter, dict[str, Any]]:
        """States by parameter."""
        return {p: s for optimizer in self.optimizers for p, s in optimizer.state.items()}

    def step(self) -> None:
        """All of them."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """All of them."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)


def _muon(parameters: list[nn.Parameter], **adamw: Any) -> tuple[Optimizer, Optimizer]:
    """Muon for the matrices between the first and the last, AdamW for the rest."""
    hidden = [p for p in parameters if p.dim() == 2][1:-1]
    taken = set(map(id, hidden))
    rest = [p for p in parameters if id(p) not in taken]
    return Muon(hidden, lr=RATE), AdamW(rest, lr=RATE, **adamw)


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer | Together]] = {
    "adamw_fused": _made(AdamW, fused=True),
    "adamw_foreach": _made(AdamW, foreach=True),
    "adamw_loop": _made(AdamW, **LOOP),
    "adamw_foreach_amsgrad": _made(AdamW, foreach=True, amsgrad=True),
    "adamw_loop_amsgrad": _made(AdamW, amsgrad=True, **LOOP),
    "adamw_fused_amsgrad": _made(AdamW, fused=True, amsgrad=True),
    "adam_fused": _made(Adam, fused=True),
    "adam_foreach": _made(Adam, foreach=True),
    "adam_loop": _made(Adam, **LOOP),
    "adam_foreach_wd": _made(Adam, foreach=True, weight_decay=0.1),
    "adam_loop_wd": _made(Adam, weight_decay=0.1, **LOOP),
    "sgd": _made(SGD, foreach=True),
    "sgd_loop": _made(SGD, **LOOP),
    "sgd_wd": _made(SGD, foreach=True, weight_decay=0.1),
    "sgd_loop_wd": _made(SGD, weight_decay=0.1, **LOOP),
    "sgdm": _made(SGD, momentum=0.9, foreach=True),
    "sgdm_loop": _made(SGD, momentum=0.9, **LOOP),
    "sgdm_wd": _made(SGD, momentum=0.9, foreach=True, weight_decay=0.1),
    "sgdm_loop_wd": _made(SGD, momentum=0.9, weight_decay=0.1, **LOOP),
    "sgdm_fused": _made(SGD, momentum=0.9, fused=True),
    "adafactor_loop": _made(Adafactor, foreach=False),
    "adafactor_foreach": _made(Adafactor, foreach=True),
    "muon": lambda parameters: Together(*_muon(list(parameters), foreach=True)),
    "muon_loop": lambda parameters: Together(*_muon(list(parameters), **LOOP)),
    "muon_fused": lambda parameters: Together(*_muon(list(parameters), fused=True)),
}
