"""How FSDP2 cuts a unit's parameters: per parameter, along dim 0, padded to the world size.

Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, ``FSDPParam._init_sharded_param``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from simulator.model.graph import Graph, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One parameter: every rank stores ``rows`` rows (the last ranks' are padding)."""

    weight: Weight
    rows: int
    world: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one rank's shard."""
        return (self.rows, *self.weight.stored_shape[1:])

    @property
    def numel(self) -> int:
        """Elements of one rank's shard, padding included."""
        return prod(self.shape)

    @property
    def padded(self) -> int:
        """Elements of the gathered parameter, padding included."""
        return self.numel * self.world


def shards_of(graph: Graph, world: int) -> tuple[Shard, ...]:
    """The shards of a unit's own weights over ``world`` ranks, in registration order.

    A tied weight belongs to the embedding's unit.

    >>> from simulator.model.graph import Graph, Weight
    >>> w = Weight(name="w", shape=(10, 4), module="m")
    >>> g = Graph(name="g", values=(), ops=(), weights=(w,), input=None, output=0)
    >>> [(s.rows, s.numel, s.padded) for s in shards_of(g, 8)]
    [(2, 8, 64)]
    """
    return tuple(
        Shard(weight=weight, rows=-(-weight.stored_shape[0] // world), world=world)
        for weight in graph.weights
        if not weight.tied
    )
