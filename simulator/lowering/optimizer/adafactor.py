"""Adafactor (arXiv:1804.04235) as torch runs it: torch/optim/_adafactor.py (2.13).

A matrix keeps the variances of its rows and of its columns, a vector its variance.
"""

from __future__ import annotations

from math import prod

from simulator.kernels import Elementwise, Gemm
from simulator.lowering.optimizer.op import IDLE, Group, Op, Ops, Optimizer
from simulator.lowering.optimizer.tensors import Sizes, element_wise, local, zeros
from simulator.lowering.shards import Shard
from simulator.plan.plan import Hyper, Precision

WEIGHT_DECAY = 0.01
"""torch's default."""


def for_loop(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_single_tensor_adafactor``: parameter by parameter."""
    adafactor = _Adafactor(name, precision, hyper)
    return (Group(name=name, looped=True, states=adafactor.states, step=adafactor.for_loop),)


def foreach(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_multi_tensor_adafactor``: over all matrices, then over all vectors."""
    adafactor = _Adafactor(name, precision, hyper)
    return (Group(name=name, looped=False, states=adafactor.states, step=adafactor.foreach),)


class _Adafactor:
    def __init__(self, name: str, precision: Precision, hyper: Hyper) -> None:
        self.decays = hyper.weight_decay is None or hyper.weight_decay != 0
        self.dtype = precision.gradients
        self.name, self.sizes = name, Sizes(name=name, precision=precision)

    def states(self, shard: Shard) -> Ops:
        """In the gradient's dtype; step counters stay on the host."""
        if len(shard.shape) == 1:
            return (zeros(shard, "variance", self.dtype),)
        return (
            zeros(shard, "row_var", self.dtype, _rows(shard)),
            zeros(shard, "col_var", self.dtype, _columns(shard)),
        )

    def for_loop(self, shard: Shard, first: bool) -> Ops:
        """One parameter's ``update``, once its estimate, lives until the next one has its own."""
        estimate = self._of_vector(shard) if len(shard.shape) == 1 else self._of_matrix(shard)
        return (
            *self._start(shard),
            *estimate,
            Op(work=self._kernel(shard, "rsqrt", "gg", "gg"), binds=(("update", "estimate"),)),
            Op(work=self._kernel(shard, "mul grad", "gg", "g")),
            self._norm(shard, "update norm", "g"),
            Op(work=self._kernel(shard, "update", "pg", "p")),
        )

    def foreach(self, shard: Shard, first: bool) -> Ops:
        """Matrices' updates live until the vectors have theirs."""
        matrix = len(shard.shape) > 1
        of_matrix = (*self._start(shard), *self._of_matrix(shard, listed=True))
        of_vector = (*self._start(shard), *self._of_vector(shard, listed=True))
        update = (
            Op(work=self._kernel(shard, "rsqrt", "gg", "gg")),
            Op(work=self._kernel(shard, "mul grad", "gg", "g")),
            self._norm(shard, "update norm", "g"),
            Op(work=self._kernel(shard, "scale", "g", "g")),
            Op(work=self._kernel(shard, "update", "pg", "p")),
        )
        release = Op(drops=("estimate",))
        if matrix:
            rest = [IDLE] * len(of_vector)
            return (*of_matrix, *update, *rest, release, *([IDLE] * (len(update) + 1)))
        before = [IDLE] * (len(of_matrix) + len(update))
        return (*before, *of_vector, IDLE, *update, release)

    def _start(self, shard: Shard) -> Ops:
        """The parameter's norm, which the host waits for, then weight decay."""
        norm = self._norm(shard, "parameter norm", "p")
        if not self.decays:
            return (norm,)
        return norm, self.sizes.call(shard, "weight_decay", "p", "p")

    def _of_matrix(self, shard: Shard, *, listed: bool = False) -> Ops:
        """``row_var @ col_var``, over the mean of the rows; means are norms squared.

        ``listed``: lists of means are deleted; in a loop each waits for the next parameter's.
        """
        ops = []
        for mean, shape in (("row_mean", _rows(shard)), ("col_mean", _columns(shard))):
            read, made = self._bytes(shard.shape), local(shard, mean, self.dtype, shape)
            size = made[1].requested
            ops += [
                Op(
                    work=element_wise(f"{self.name}.{mean}", read, size),
                    makes=made,
                    binds=() if listed else ((mean, mean),),
                ),
                Op(work=element_wise(f"{self.name}.{mean} square", size, size)),
                Op(work=element_wise(f"{self.name}.{mean} div", size, size)),
                Op(
                    work=element_wise(f"{self.name}.{mean} lerp", 2 * size, size),
                    drops=(mean,) if listed else (),
                ),
            ]
        row, rows, columns = self._bytes(_rows(shard)), shard.shape[0], shard.shape[-1]
        product = Gemm(name=f"{self.name}.estimate", m=rows, n=columns, k=1, dtype=self.dtype)
        averaged = Op(
            work=element_wise(f"{self.name}.row_var mean", row, 4),
            makes=local(shard, "row_var_mean", self.dtype, (1, 1)),
        )
        divided = Op(work=self._kernel(shard, "div mean", "g", "g"), drops=("row_var_mean",))
        return (
            *ops,
            Op(work=product, makes=local(shard, "estimate", self.dtype)),
            averaged,
            divided,
        )

    def _of_vector(self, shard: Shard, *, listed: bool = False) -> Ops:
        """A copy of the variance."""
        squared = Op(
            work=self._kernel(shard, "square", "gg", "g"),
            makes=local(shard, "squared", self.dtype),
            binds=() if listed else (("grad_squared", "squared"),),
        )
        lerp = Op(work=self._kernel(shard, "lerp", "gg", "g"), drops=("squared",) if listed else ())
        copied = Op(
            work=self._kernel(shard, "clone", "g", "g"), makes=local(shard, "estimate", self.dtype)
        )
        return squared, lerp, copied

    def _norm(self, shard: Shard, what: str, letter: str) -> Op:
        """A norm that is read on the host."""
        return Op(
            work=self._kernel(shard, what, letter, ""),
            makes=local(shard, "norm", self.dtype, (1,)),
            drops=("norm",),
        )

    def _kernel(self, shard: Shard, what: str, read: str, written: str) -> Elementwise:
        return self.sizes.kernel(shard, what, read, written)

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return prod(shape) * self.dtype.itemsize


def _rows(shard: Shard) -> tuple[int, ...]:
    return (*shard.shape[:-1], 1)


def _columns(shard: Shard) -> tuple[int, ...]:
    return (*shard.shape[:-2], 1, shard.shape[-1])
