"""A model with what the frameworks need to find in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, None: None}

At: TypeAlias = Callable[[str], None]
"""Tells the tracer in which module the run is."""


@dataclass(slots=True, kw_only=True)
class Built:
    """``loss(module, tokens, labels, at)`` is one forward; ``module`` is the wrapped root."""

    root: nn.Module
    embedding: nn.Module
    blocks: nn.ModuleList
    head: list[nn.Module]
    loss: Callable[[nn.Module, Tensor, Tensor, At], Tensor]


def masked(module: nn.Module, mask: Tensor | None) -> Any:
    """The module as a loop calls it whose batch says what is no padding (None: it doesn't)."""
    return module if mask is None else partial(module, attention_mask=mask)


@contextmanager
def building(dtype: torch.dtype | None) -> Iterator[None]:
    """Modules made meanwhile are on the fake device, in ``dtype``."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        with torch.device("cuda"):
            yield
    finally:
        torch.set_default_dtype(before)
