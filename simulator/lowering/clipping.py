"""``clip_grad_norm_`` (torch/nn/utils/clip_grad.py, foreach): one norm a parameter, their norm over
all parameters and ranks, then one scaling pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream, Tensor

MODULE = "optimizer"


def clip_tensors(w: BlockWriter, shards: Sequence[Shard], gradients: DType) -> None:
    """Over plain tensors: the norm of the norms, all on this rank and in the gradients' dtype."""
    c = _Clipping(w, len(shards), _bytes(shards, gradients), gradients)
    norms = c.norms()
    stack = c.many("stack")
    total = c.one("total_norm")
    for name in ("stack", "total_norm"):
        c.small(name, len(shards))
    w.free_all((stack, *reversed(norms)))
    c.scale(total)


def clip_dtensors(w: BlockWriter, shards: Sequence[Shard], gradients: DType, ranks: int) -> None:
    """Over DTensors: the norms are stacked sharded, and redistributed as p-th powers."""
    c = _Clipping(w, len(shards), _bytes(shards, gradients), DType.FP32)
    norms = c.norms()
    stack, power, reduced, root = (c.many(name) for name in ("stack", "pow", "all_reduced", "root"))
    c.small("stack", len(shards))
    c.small("pow", len(shards))
    if ranks > 1:
        all_reduce_norm(w, 4 * len(shards), "dp_shard")
    c.small("pow", len(shards))
    w.free_all((power, reduced))
    total = c.one("total_norm")
    c.small("total_norm", len(shards))
    w.free_all((root, stack, *reversed(norms)))
    c.scale(total)


def clip_flat(w: BlockWriter, shards: Sequence[Shard], gradients: DType) -> None:
    """FSDP1's own ``clip_grad_norm_``: local norms in fp32, one number over all ranks.

    Source: torch/distributed/fsdp/fully_sharded_data_parallel.py.
    """
    c = _Clipping(w, len(shards), _bytes(shards, gradients), DType.FP32)
    norms = c.norms()
    stack = c.many("stack")
    w.free_all(reversed(norms))
    local = c.one("local_norm")
    for name in ("stack", "local_norm"):
        c.small(name, len(shards))
    w.free(stack)
    power = c.one("pow")
    c.small("pow", 1)
    all_reduce_norm(w, 4, "dp_shard")
    total = c.one("total_norm")
    c.small("total_norm", 1)
    w.free(power)
    c.scale(total)
    w.free(local)


def all_reduce_norm(w: BlockWriter, size: int, group: str) -> None:
    """Sum ``size`` bytes of norms over a group, on the compute stream."""
    w.collective(
        Collective(
            kind="all_reduce",
            bytes=size,
            group=group,
            stream=Stream.COMPUTE,
            name="all_reduce grad_norm",
            module=MODULE,
        )
    )


def _bytes(shards: Sequence[Shard], gradients: DType) -> int:
    return gradients.itemsize * sum(shard.numel for shard in shards)


@dataclass(frozen=True, slots=True)
class _Clipping:
    """Parts of it; ``dtype`` of the norms, ``size``: bytes of the local gradients."""

    w: BlockWriter
    parameters: int
    size: int
    dtype: DType

    def norms(self) -> list[int]:
        """One norm a parameter."""
        norms = [self.one("norm") for _ in range(self.parameters)]
        self._pass("norm", written=0)
        return norms

    def scale(self, total: int) -> None:
        """Multiply all gradients by ``max_norm / (total + 1e-6)``, clamped to 1."""
        w = self.w
        shifted, inverse, product = (self.one(name) for name in ("shifted", "inverse", "product"))
        w.free_all((inverse, shifted))
        factor = self.one("factor")
        for name in ("add", "reciprocal", "mul", "clamp"):
            self.small(name, 1)
        w.free(product)
        self._pass("scale", written=self.size)
        w.free_all((factor, total))

    def one(self, name: str) -> int:
        """A temporary of one number."""
        return self._temporary(name, 1)

    def many(self, name: str) -> int:
        """A temporary of one number a parameter."""
        return self._temporary(name, self.parameters)

    def small(self, name: str, numel: int) -> None:
        """A kernel over so many numbers."""
        size = self.dtype.itemsize * numel
        self.w.launch(
            Elementwise(name=f"clip.{name}", kind="copy", read=size, written=size), MODULE
        )

    def _pass(self, name: str, *, written: int) -> None:
        kernel = Elementwise(name=f"clip.{name}", kind="optimizer", read=self.size, written=written)
        self.w.launch(kernel, MODULE)

    def _temporary(self, name: str, numel: int) -> int:
        return self.w.alloc(
            Tensor(
                name=f"clip.{name}",
                shape=(numel,),
                dtype=self.dtype,
                category=Category.OPTIMIZER_TEMPORARIES,
                module=MODULE,
            )
        )
