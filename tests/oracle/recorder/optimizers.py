"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

RATE = 1e-4

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "adamw_fused": lambda parameters: AdamW(parameters, lr=RATE, fused=True),
    "adamw_foreach": lambda parameters: AdamW(parameters, lr=RATE, foreach=True),
    "adamw_loop": lambda parameters: AdamW(parameters, lr=RATE, foreach=False, fused=False),
    "sgdm": lambda parameters: SGD(parameters, lr=RATE, momentum=0.9, foreach=True),
    "sgdm_loop": lambda parameters: SGD(parameters, lr=RATE, momentum=0.9, foreach=False),
}
