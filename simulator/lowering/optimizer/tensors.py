"""Tensors and kernels that optimizers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.shards import Shard
from simulator.plan.plan import Precision
from simulator.program.instructions import Category, Tensor

MODULE = "optimizer"

Letters = Mapping[str, int]
"""Bytes of one element: ``p`` parameter, ``g`` gradient, ``m`` moment."""


def letters(precision: Precision) -> Letters:
    """Element sizes by letter."""
    return {
        "p": precision.parameters.itemsize,
        "g": precision.gradients.itemsize,
        "m": precision.moments.itemsize,
    }


def pass_over(
    name: str, sizes: Letters, read: str, written: str, shards: Sequence[Shard]
) -> Elementwise:
    """A kernel that reads and writes whole tensors of ``shards``, one a letter."""
    numel = sum(shard.numel for shard in shards)
    return Elementwise(
        name=name,
        kind="optimizer",
        read=numel * sum(sizes[letter] for letter in read),
        written=numel * sum(sizes[letter] for letter in written),
    )


def shard_tensor(shard: Shard, name: str, dtype: DType, category: Category) -> Tensor:
    """A tensor of a shard's shape."""
    return Tensor(
        name=f"{shard.weight.name}.{name}",
        shape=shard.shape,
        dtype=dtype,
        category=category,
        module=MODULE,
    )
