"""SGD as torch runs it: torch/optim/sgd.py (2.13)."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.lowering.optimizer.op import Group, Op, Ops, Optimizer, nothing
from simulator.lowering.optimizer.tensors import Sizes, local, state
from simulator.lowering.shards import Shard
from simulator.plan.plan import Hyper, Precision


def foreach(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_multi_tensor_sgd``: each call goes over all parameters."""
    return (Group(name=name, looped=False, step=_Sgd(name, precision, hyper).foreach),)


def for_loop(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_single_tensor_sgd``: parameter by parameter."""
    return (Group(name=name, looped=True, step=_Sgd(name, precision, hyper).for_loop),)


def fused(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """``_fused_sgd_``: one kernel; the first step leaves it the momentum to fill."""
    sgd = _Sgd(name, precision, hyper)
    states = sgd.empty if hyper.momentum else nothing
    return (Group(name=name, looped=False, states=states, step=sgd.fused),)


class _Sgd:
    def __init__(self, name: str, precision: Precision, hyper: Hyper) -> None:
        self.decays, self.momentum = bool(hyper.weight_decay), bool(hyper.momentum)
        self.gradients = precision.gradients
        self.sizes = Sizes(name=name, precision=precision)

    def empty(self, shard: Shard) -> Ops:
        """``torch.empty_like(grad)``."""
        return (Op(makes=state(shard, "momentum", self.gradients), stays=True),)

    def fused(self, shard: Shard, first: bool) -> Ops:
        kept = "m" if self.momentum else ""
        return (self.sizes.call(shard, "fused", "pg" if first else f"pg{kept}", f"p{kept}"),)

    def foreach(self, shard: Shard, first: bool) -> Ops:
        """With weight decay the gradients are copied; momentum takes the copies' place."""
        copies = ("decayed",) if self.decays else ()
        return (
            *self._decay(shard),
            *self._moment(shard, first),
            *((Op(drops=copies),) if self.momentum else ()),
            self._update(shard),
            *(() if self.momentum else (Op(drops=copies),)),
        )

    def for_loop(self, shard: Shard, first: bool) -> Ops:
        """Without momentum a parameter's copied ``grad`` lives until the next one's turn."""
        waits = self.decays and not self.momentum
        copies = ("decayed",) if self.decays else ()
        return (
            *((Op(unbinds=("grad",)),) if waits else ()),
            *self._decay(shard, binds=(("grad", "decayed"),) if waits else ()),
            *self._moment(shard, first, drops=copies),
            self._update(shard),
        )

    def _decay(self, shard: Shard, binds: tuple[tuple[str, str], ...] = ()) -> Iterator[Op]:
        if self.decays:
            kernel = self.sizes.kernel(shard, "weight_decay", "pg", "g")
            yield Op(work=kernel, makes=local(shard, "decayed", self.gradients), binds=binds)

    def _moment(self, shard: Shard, first: bool, drops: tuple[str, ...] = ()) -> Iterator[Op]:
        """The buffer is born as a copy of the first gradient."""
        if not self.momentum:
            return
        if first:
            kernel, made = self.sizes.kernel, state(shard, "momentum", self.gradients)
            yield Op(work=kernel(shard, "clone", "g", "g"), makes=made, stays=True, drops=drops)
        else:
            yield self.sizes.call(shard, "mul momentum", "m", "m")
            yield Op(work=self.sizes.kernel(shard, "add gradient", "mg", "m"), drops=drops)

    def _update(self, shard: Shard) -> Op:
        return self.sizes.call(shard, "update", "pm" if self.momentum else "pg", "p")
