"""Local parameters: whole, or cut as FSDP2 does, each along dim 0 and padded to the world size.

Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, ``FSDPParam._init_sharded_param``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from simulator.dtypes import DType
from simulator.lowering.quantised import alloc_states
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Graph, Weight
from simulator.program.instructions import Category, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One rank's part of a parameter: a tensor of ``shape``, one of ``world`` like it."""

    weight: Weight
    shape: tuple[int, ...]
    world: int

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

    Each is cut along dim 0; every rank stores as many rows (the last ranks' are padding). One
    rank has the weights whole. A tied weight belongs to the embedding's unit.

    >>> from simulator.model.graph import Graph, Weight
    >>> w = Weight(name="w", shape=(10, 4), module="m")
    >>> g = Graph(name="g", values=(), ops=(), weights=(w,), input=None, output=0)
    >>> [(s.shape, s.numel, s.padded) for s in shards_of(g, 8)]
    [((2, 4), 8, 64)]
    """
    return tuple(_cut(weight, world) for weight in graph.weights if not weight.tied)


def _cut(weight: Weight, world: int) -> Shard:
    rows, *rest = weight.stored_shape
    return Shard(weight=weight, shape=(-(-rows // world), *rest), world=world)


def trained(shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """The shards that are not frozen."""
    return tuple(shard for shard in shards if shard.weight.trainable)


def alloc_shards(w: BlockWriter, shards: Sequence[Shard], stored: DType) -> None:
    """Allocate each shard on its own, in its weight's dtype or else in ``stored``."""
    for shard in shards:
        weight = shard.weight
        tensor = Tensor(
            name=weight.name,
            shape=shard.shape,
            dtype=weight.dtype or stored,
            category=Category.PARAMETERS,
            module=weight.module,
        )
        w.alloc(tensor, slot=w.shared("own", f"shard.{weight.name}"))
        alloc_states(w, weight)
