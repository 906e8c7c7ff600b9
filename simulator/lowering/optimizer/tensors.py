"""Tensors and kernels that optimizers share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.optimizer.op import Op
from simulator.lowering.shards import Shard
from simulator.plan.plan import Precision
from simulator.program.instructions import Category, Tensor

MODULE = "optimizer"


def element_wise(name: str, read: int, written: int) -> Elementwise:
    """A kernel that reads and writes so many bytes."""
    return Elementwise(name=name, kind="optimizer", read=read, written=written)


Shape = tuple[int, ...]


def local(shard: Shard, name: str, dtype: DType, shape: Shape | None = None) -> tuple[str, Tensor]:
    """A temporary of one parameter, of its shard's shape if no other is given."""
    return name, _tensor(shard, name, dtype, shape, Category.OPTIMIZER_TEMPORARIES)


def state(shard: Shard, name: str, dtype: DType, shape: Shape | None = None) -> tuple[str, Tensor]:
    """A state of one parameter, likewise."""
    return name, _tensor(shard, name, dtype, shape, Category.OPTIMIZER)


def zeros(shard: Shard, name: str, dtype: DType, shape: Shape | None = None) -> Op:
    """A state that is born full of zeros."""
    made = state(shard, name, dtype, shape)
    fill = Elementwise(name=f"zeros {name}", kind="copy", read=0, written=made[1].requested)
    return Op(work=fill, makes=made, stays=True)


def _tensor(
    shard: Shard, name: str, dtype: DType, shape: Shape | None, category: Category
) -> Tensor:
    return Tensor(
        name=f"{shard.weight.name}.{name}",
        shape=shard.shape if shape is None else shape,
        dtype=dtype,
        category=category,
        module=MODULE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Kernels of one optimizer over whole tensors, one a letter.

    ``p`` parameter, ``g`` gradient, ``m`` moment (or a temporary of its dtype).
    """

    name: str
    precision: Precision

    def kernel(self, shard: Shard, what: str, read: str, written: str) -> Elementwise:
        """One that reads and writes the tensors of a shard that the letters name."""
        return element_wise(
            f"{self.name}.{what}", self._bytes(shard, read), self._bytes(shard, written)
        )

    def call(self, shard: Shard, what: str, read: str, written: str) -> Op:
        """A call that makes nothing."""
        return Op(work=self.kernel(shard, what, read, written))

    def _bytes(self, shard: Shard, letters: str) -> int:
        return prod(shard.shape) * sum(self._itemsize(letter) for letter in letters)

    def _itemsize(self, letter: str) -> int:
        dtypes = {
            "p": self.precision.parameters,
            "g": self.precision.gradients,
            "m": self.precision.moments,
        }
        return dtypes[letter].itemsize
