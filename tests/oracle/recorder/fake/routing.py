"""What only a real router could tell: here every expert is sent the same number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@dataclass(slots=True)
class Routing:
    """A loop over the experts: how many there are, and which is next."""

    experts: int = 0
    next: int = 0

    def nonzero(self, mask: Tensor) -> Tensor:
        """Places of what is true: all experts but the last (padding), or one expert's tokens.

        transformers asks first which experts were hit, [experts + 1], then for each of them which
        tokens it was sent, [k, tokens].
        """
        if mask.dim() == 1:
            self.experts, self.next = mask.shape[0] - 1, 0
            rows = self.experts
        else:
            each, more = divmod(mask.numel(), self.experts)
            rows = each + (self.next < more)
            self.next += 1
        return torch.empty(rows, mask.dim(), dtype=torch.long, device=mask.device)


def _number(_: Routing, tensor: Tensor) -> float:
    """An index is the first; a step counter or a scale is 1, by which one can divide."""
    return 1.0 if tensor.is_floating_point() else 0


UNKNOWABLE: dict[Any, Callable[[Routing, Tensor], Any]] = {
    aten.nonzero.default: Routing.nonzero,
    aten._local_scalar_dense.default: _number,
}
"""Operators whose results depend on data, which fake tensors have none of."""
