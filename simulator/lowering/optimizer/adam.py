"""Adam (arXiv:1412.6980) and AdamW (arXiv:1711.05101) as torch runs them.

Source: torch/optim/adam.py (2.13), whose functions AdamW calls too.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.dtypes import DType
from simulator.lowering.optimizer.op import Group, Op, Ops, Optimizer
from simulator.lowering.optimizer.tensors import Sizes, local, state, zeros
from simulator.lowering.shards import Shard
from simulator.plan.plan import Hyper, Precision

WEIGHT_DECAY = {"adam": 0.0, "adamw": 0.01}
"""torch's defaults."""


def foreach(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_multi_tensor_adam``: each call goes over all parameters."""
    adam = _Adam(name, precision, hyper)
    return (Group(name=name, looped=False, states=adam.moments, step=adam.foreach),)


def for_loop(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_single_tensor_adam``: parameter by parameter."""
    adam = _Adam(name, precision, hyper)
    return (Group(name=name, looped=True, states=adam.moments, step=adam.for_loop),)


def fused(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_fused_adam_`` and ``_fused_adamw_``: one kernel, no temporaries."""
    adam = _Adam(name, precision, hyper)
    return (Group(name=name, looped=False, states=adam.counted, step=adam.fused),)


class _Adam:
    def __init__(self, name: str, precision: Precision, hyper: Hyper) -> None:
        decay = WEIGHT_DECAY[name] if hyper.weight_decay is None else hyper.weight_decay
        self.decays = decay != 0 and name == "adamw"
        self.regularises = decay != 0 and name == "adam"
        self.amsgrad = hyper.amsgrad
        self.dtype, self.gradients = precision.moments, precision.gradients
        self.sizes = Sizes(name=name, precision=precision)

    def moments(self, shard: Shard) -> Ops:
        """Two a parameter, three with amsgrad; step counters stay on the host."""
        names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))
        return [zeros(shard, name, self.dtype) for name in names]

    def counted(self, shard: Shard) -> Ops:
        """Fused, the step counter lives on the device."""
        counter = Op(makes=state(shard, "step", DType.FP32, (1,)), stays=True)
        return (counter, *self.moments(shard))

    def fused(self, shard: Shard, first: bool) -> Ops:
        """Reads parameter, gradient and moments; writes all but the gradient."""
        moments = "mmm" if self.amsgrad else "mm"
        return (self.sizes.call(shard, "fused", f"pg{moments}", f"p{moments}"),)

    def foreach(self, shard: Shard, first: bool) -> Ops:
        """The square roots of exp_avg_sq live to the end of the step."""
        call = self.sizes.call
        return (
            *self._decay(shard),
            *self._averages(shard, drops=("decayed",) if self.regularises else ()),
            Op(
                work=self.sizes.kernel(shard, "sqrt", "m", "m"),
                makes=local(shard, "sqrt", self.dtype),
            ),
            call(shard, "div bias_correction", "m", "m"),
            call(shard, "add eps", "m", "m"),
            call(shard, "addcdiv", "pmm", "p"),
            Op(drops=("sqrt",)),
        )

    def for_loop(self, shard: Shard, first: bool) -> Ops:
        """``denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)``.

        One parameter's ``denom`` lives until the next one's is there, and with weight decay its
        ``grad`` until the next one's turn.
        """
        kernel = self.sizes.kernel
        return (
            *((Op(unbinds=("grad",)),) if self.regularises else ()),
            *self._decay(shard, binds=(("grad", "decayed"),) if self.regularises else ()),
            *self._averages(shard),
            Op(work=kernel(shard, "sqrt", "m", "m"), makes=local(shard, "sqrt", self.dtype)),
            Op(
                work=kernel(shard, "div", "m", "m"),
                makes=local(shard, "denominator", self.dtype),
                drops=("sqrt",),
                binds=(("denom", "denominator"),),
            ),
            self.sizes.call(shard, "add eps", "m", "m"),
            self.sizes.call(shard, "addcdiv", "pmm", "p"),
        )

    def _decay(self, shard: Shard, binds: tuple[tuple[str, str], ...] = ()) -> Iterator[Op]:
        """AdamW shrinks the parameters; Adam adds them to a copy of the gradients."""
        if self.decays:
            yield self.sizes.call(shard, "weight_decay", "p", "p")
        if self.regularises:
            yield Op(
                work=self.sizes.kernel(shard, "weight_decay", "pg", "g"),
                makes=local(shard, "decayed", self.gradients),
                binds=binds,
            )

    def _averages(self, shard: Shard, drops: tuple[str, ...] = ()) -> Iterator[Op]:
        yield self.sizes.call(shard, "lerp exp_avg", "mg", "m")
        yield self.sizes.call(shard, "mul exp_avg_sq", "m", "m")
        yield Op(work=self.sizes.kernel(shard, "addcmul exp_avg_sq", "mgg", "m"), drops=drops)
        if self.amsgrad:
            yield self.sizes.call(shard, "maximum", "mm", "m")
