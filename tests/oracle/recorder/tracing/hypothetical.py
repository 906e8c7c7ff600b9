"""Tensors that DTensor makes up and nobody allocates.

To place an operator's result, DTensor tries it on tensors of global shape in the fake mode at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch.distributed.tensor._sharding_prop import ShardingPropagator

WHERE = "_propagate_tensor_meta_non_cached"


@dataclass(slots=True)
class Depth:
    """How many trials are under way."""

    depth: int = 0


@contextmanager
def hypothetical() -> Iterator[Depth]:
    """Count the trials while entered."""
    trials, method = Depth(), getattr(ShardingPropagator, WHERE)

    def counted(*args: Any, **kwargs: Any) -> Any:
        trials.depth += 1
        try:
            return method(*args, **kwargs)
        finally:
            trials.depth -= 1

    with mock.patch.object(ShardingPropagator, WHERE, counted):
        yield trials
