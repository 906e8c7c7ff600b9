"""Muon as torch runs it, on the matrices between embedding and head; AdamW takes the rest.

Source: torch/optim/_muon.py (2.13). Each update is made orthogonal by five Newton-Schulz steps in
bf16. It runs through DTensor: where a matrix is sharded its Gram matrix is summed over the ranks
if it has more rows than columns; else it and its matrix are gathered, for each product again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Gemm
from simulator.lowering.optimizer.op import Group, Op, Ops, Optimizer
from simulator.lowering.optimizer.tensors import MODULE, Sizes, element_wise, local, zeros
from simulator.lowering.shards import Shard
from simulator.plan.plan import Hyper, Precision
from simulator.program.instructions import Collective, Stream, Tensor

STEPS = 5
"""``DEFAULT_NS_STEPS``."""


def with_adamw(
    rest: Callable[[str, Precision, Hyper], Optimizer],
) -> Callable[[str, Precision, Hyper], Optimizer]:
    """Muon, then what ``rest`` makes of the parameters that Muon leaves."""

    def make(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
        muon = _Muon(name, precision)
        mine = Group(name=name, looped=True, takes=is_hidden, states=muon.states, step=muon.step)
        return mine, *(replace(g, takes=is_left) for g in rest("adamw", precision, hyper))

    return make


def is_hidden(shard: Shard) -> bool:
    """Whether a parameter is a matrix of a block."""
    return len(shard.shape) == 2 and shard.weight.module.startswith("layers.")


def is_left(shard: Shard) -> bool:
    """Embedding, head, norms and biases."""
    return not is_hidden(shard)


class _Muon:
    def __init__(self, name: str, precision: Precision) -> None:
        self.name, self.dtype = name, precision.gradients
        self.sizes = Sizes(name=name, precision=precision)

    def states(self, shard: Shard) -> Ops:
        """One momentum, in the gradient's dtype."""
        return (zeros(shard, "momentum_buffer", self.dtype),)

    def step(self, shard: Shard, first: bool) -> Ops:
        """``grad.lerp(buf)``, made orthogonal, is added. It lives until the next one's lerp."""
        return (
            self.sizes.call(shard, "lerp momentum", "mg", "m"),
            Op(
                work=self.sizes.kernel(shard, "lerp grad", "mg", "g"),
                makes=local(shard, "update", self.dtype),
                binds=(("update", "update"),),
            ),
            *_Orthogonal(self.name, self.dtype, shard).ops(),
            self.sizes.call(shard, "weight_decay", "p", "p"),
            self.sizes.call(shard, "update", "pg", "p"),
        )


class _Orthogonal:
    """``_zeropower_via_newtonschulz`` of one parameter's update, as a rank runs it."""

    def __init__(self, name: str, dtype: DType, shard: Shard) -> None:
        self.name, self.dtype, self.shard = name, dtype, shard
        self.rows, self.columns = shard.shape
        self.sharded = shard.world > 1
        self.tall = shard.weight.shape[0] > shard.weight.shape[1]
        whole = self.rows * shard.world
        self.gram = (self.columns,) * 2 if self.tall else (self.rows, whole)
        self.whole = (whole, self.columns)

    def ops(self) -> Iterator[Op]:
        """Cast, norm, five steps; what the function's variables held goes when it returns."""
        if self.dtype is not DType.BF16:
            cast = self._element_wise("bfloat16", self.dtype.itemsize, 2)
            yield Op(
                work=cast, makes=self._local("ortho", self.shard.shape), binds=(("ortho", "ortho"),)
            )
        yield from self._norm()
        for number in range(STEPS):
            yield from self._gram_matrix()
            yield from self._gram_update()
            yield from self._next(last=number == STEPS - 1)
        yield Op(unbinds=("ortho",))
        yield Op(unbinds=("gram_matrix", "gram_update"))
        yield Op(binds=(("update", "next"),))

    def _norm(self) -> Iterator[Op]:
        """``ortho_grad.div_(ortho_grad.norm().clamp(min=eps))``."""
        yield Op(work=self._element_wise("norm", 2, 0), makes=self._local("norm", (1,)))
        if self.sharded:
            yield Op(work=self._small("pow"), makes=self._local("squared", (1,)))
            yield Op(work=self._collective("all_reduce", 2), makes=self._local("summed", (1,)))
            yield Op(
                work=self._small("pow"),
                makes=self._local("root", (1,)),
                drops=("squared", "summed"),
            )
        found = ("root", "norm") if self.sharded else ("norm",)
        yield Op(work=self._small("clamp"), makes=self._local("clamped", (1,)), drops=found)
        yield Op(work=self._element_wise("div", 2, 2), drops=("clamped",))

    def _gram_matrix(self) -> Iterator[Op]:
        """``X @ X.T``: a part of the sum of a tall matrix, a rank's rows of another's."""
        bound = (("gram_matrix", "gram"),)
        made = self._local("gram", self.gram)
        if self.tall or not self.sharded:
            inner = self.rows if self.tall else self.columns
            yield Op(work=self._gemm(*self.gram, inner), makes=made, binds=bound)
            return
        size = self._bytes(self.whole)
        yield Op(
            work=self._element_wise("contiguous", 2, 2),
            makes=self._local("contiguous", self.shard.shape),
        )
        yield Op(
            work=self._collective("all_gather", size), makes=self._local("gathered", self.whole)
        )
        yield Op(
            work=element_wise(f"{self.name}.cat", size, size),
            makes=self._local("transposed", self.whole),
            drops=("gathered", "contiguous"),
        )
        gemm = self._gemm(*self.gram, self.columns)
        yield Op(work=gemm, makes=made, drops=("transposed",), binds=bound)

    def _gram_update(self) -> Iterator[Op]:
        """``b * A + c * A @ A``."""
        yield from self._whole_gram()
        side = self.gram[1]
        yield Op(
            work=self._gemm(*self.gram, side),
            makes=self._local("gram_update", self.gram),
            drops=("whole",) if self.sharded else (),
            binds=(("gram_update", "gram_update"),),
        )

    def _next(self, *, last: bool) -> Iterator[Op]:
        """``a * X + B @ X``."""
        if self.tall:
            yield from self._whole_gram()
            gemm = self._gemm(self.columns, self.rows, self.columns)
        else:
            if self.sharded:
                gather = self._collective("all_gather", self._bytes(self.whole))
                yield Op(work=gather, makes=self._local("whole", self.whole))
            gemm = self._gemm(self.rows, self.columns, self.gram[1])
        yield Op(
            work=gemm,
            makes=self._local("next", self.shard.shape),
            drops=("whole",) if self.sharded else (),
            binds=() if last else (("ortho", "next"),),
        )

    def _whole_gram(self) -> Iterator[Op]:
        """The Gram matrix, or its update, summed or gathered; each use does it again."""
        if not self.sharded:
            return
        shape = (self.gram[1],) * 2
        kind = "all_reduce" if self.tall else "all_gather"
        yield Op(work=self._collective(kind, self._bytes(shape)), makes=self._local("whole", shape))

    def _local(self, name: str, shape: tuple[int, ...]) -> tuple[str, Tensor]:
        return local(self.shard, name, DType.BF16, shape)

    def _gemm(self, m: int, n: int, k: int) -> Gemm:
        return Gemm(name=f"{self.name}.newton_schulz", m=m, n=n, k=k, dtype=DType.BF16)

    def _element_wise(self, what: str, read: int, written: int) -> Elementwise:
        numel = self.shard.numel
        return element_wise(f"{self.name}.{what}", read * numel, written * numel)

    def _small(self, what: str) -> Elementwise:
        return element_wise(f"{self.name}.{what}", 2, 2)

    def _collective(self, kind: str, size: int) -> Collective:
        return Collective(
            kind=kind,
            bytes=size,
            group="dp_shard",
            stream=Stream.COMPUTE,
            name=f"{kind} {self.name}",
            module=MODULE,
        )

    @staticmethod
    def _bytes(shape: tuple[int, ...]) -> int:
        return prod(shape) * DType.BF16.itemsize
