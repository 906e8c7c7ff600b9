"""Muon as torch runs it, on the matrices between embedding and head; AdamW takes the rest.

Source: torch/optim/_muon.py (2.13). Each update is made orthogonal by five Newton-Schulz steps in
bf16. It runs through DTensor, which moves what each product needs, for each product again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Gemm
from simulator.lowering.optimizer.op import Group, Op, Ops, Optimizer
from simulator.lowering.optimizer.placement import KINDS, Placed, cheapest
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
    """``_zeropower_via_newtonschulz`` of one parameter's update, as a rank runs it.

    X has no more rows than columns: a taller matrix is transposed.
    """

    def __init__(self, name: str, dtype: DType, shard: Shard) -> None:
        self.name, self.dtype, self.shard = name, dtype, shard
        rows, columns = shard.weight.shape
        self.tall = rows > columns
        self.x = Placed(
            shape=(columns, rows) if self.tall else (rows, columns),
            place="R" if shard.world == 1 else "S1" if self.tall else "S0",
            ranks=shard.world,
        )

    def ops(self) -> Iterator[Op]:
        """Cast, norm, five steps; what the function's variables held goes when it returns."""
        if self.dtype is not DType.BF16:
            cast = self._element_wise("bfloat16", self.dtype.itemsize, 2)
            yield Op(
                work=cast, makes=self._local("ortho", self.shard.shape), binds=(("ortho", "ortho"),)
            )
        yield from self._norm()
        x = self.x
        for number in range(STEPS):
            gram = yield from self._product("gram_matrix", (x, x.turned), turned=1)
            update = yield from self._product("gram_update", (gram, gram), bias=gram)
            last = number == STEPS - 1
            x = yield from self._product(None if last else "ortho", (update, x), bias=x)
        yield Op(unbinds=("ortho",))
        yield Op(unbinds=("gram_matrix", "gram_update"))
        yield Op(binds=(("update", "next"),))

    def _product(
        self,
        variable: str | None,
        factors: tuple[Placed, Placed],
        *,
        bias: Placed | None = None,
        turned: int | None = None,
    ) -> Generator[Op, None, Placed]:
        """One of ``mm`` and ``addmm``: what it moves, then the product; its result.

        ``variable`` is bound to it; ``turned`` factors are views with their columns in a row.
        """
        plan = cheapest(factors, bias)
        moved: list[str] = []
        wanted = [*([(bias, plan.out)] if bias else []), *zip(factors, plan.factors, strict=True)]
        for number, (tensor, place) in enumerate(wanted):
            if tensor.place != place and tensor.place != "R":
                yield from self._move(tensor, place, f"moved{number}", number == turned)
                moved.insert(0, f"moved{number}")
        left, right = (replace(f, place=p) for f, p in zip(factors, plan.factors, strict=True))
        out = Placed(shape=(left.shape[0], right.shape[1]), place=plan.out, ranks=self.shard.world)
        gemm = Gemm(
            name=f"{self.name}.newton_schulz",
            m=left.local[0],
            n=right.local[1],
            k=left.local[1],
            dtype=DType.BF16,
        )
        yield Op(
            work=gemm,
            makes=self._local("next", out.local),
            drops=tuple(moved),
            binds=((variable, "next"),) if variable else (),
        )
        return out

    def _move(self, tensor: Placed, place: str, name: str, turned: bool) -> Iterator[Op]:
        """DTensor's redistribution; a gather of columns is put together after it."""
        copies = ("contiguous",) if turned else ()
        if turned:
            yield Op(
                work=self._copy("contiguous", tensor.bytes),
                makes=self._local("contiguous", tensor.local),
            )
        kind = KINDS[tensor.place[0], place[0]]
        whole = replace(tensor, place="R")
        size = tensor.bytes if kind == "all_to_all" else whole.bytes
        target = replace(tensor, place=place)
        shape = whole.local if place == "R" else target.local
        if kind == "all_gather":
            shape = tensor.padded
        cut = kind == "all_gather" and tensor.place == "S1"
        work = self._collective(kind, size)
        made = self._local("gathered" if cut else name, shape)
        yield Op(work=work, makes=made, drops=() if cut else copies)
        if cut:
            yield Op(
                work=self._copy("cat", whole.bytes),
                makes=self._local(name, whole.local),
                drops=("gathered", *copies),
            )

    def _norm(self) -> Iterator[Op]:
        """``ortho_grad.div_(ortho_grad.norm().clamp(min=eps))``."""
        sharded = self.shard.world > 1
        yield Op(work=self._element_wise("norm", 2, 0), makes=self._local("norm", (1,)))
        if sharded:
            yield Op(work=self._copy("pow", 2), makes=self._local("squared", (1,)))
            yield Op(work=self._collective("all_reduce", 2), makes=self._local("summed", (1,)))
            yield Op(
                work=self._copy("pow", 2),
                makes=self._local("root", (1,)),
                drops=("squared", "summed"),
            )
        found = ("root", "norm") if sharded else ("norm",)
        yield Op(work=self._copy("clamp", 2), makes=self._local("clamped", (1,)), drops=found)
        yield Op(work=self._element_wise("div", 2, 2), drops=("clamped",))

    def _local(self, name: str, shape: tuple[int, ...]) -> tuple[str, Tensor]:
        return local(self.shard, name, DType.BF16, shape)

    def _element_wise(self, what: str, read: int, written: int) -> Elementwise:
        numel = self.shard.numel
        return element_wise(f"{self.name}.{what}", read * numel, written * numel)

    def _copy(self, what: str, size: int) -> Elementwise:
        return element_wise(f"{self.name}.{what}", size, size)

    def _collective(self, kind: str, size: int) -> Collective:
        return Collective(
            kind=kind,
            bytes=size,
            group="dp_shard",
            stream=Stream.COMPUTE,
            name=f"{kind} {self.name}",
            module=MODULE,
        )
