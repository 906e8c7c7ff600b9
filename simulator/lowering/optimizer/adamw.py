"""AdamW (arXiv:1711.05101) as torch runs it: torch/optim/adamw.py and adam.py (2.13)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Precision
from simulator.program.instructions import Category, Tensor

MODULE = "optimizer"


def _tensor(shard: Shard, name: str, dtype: DType, category: Category) -> Tensor:
    return Tensor(
        name=f"{shard.weight.name}.{name}",
        shape=shard.shape,
        dtype=dtype,
        category=category,
        module=MODULE,
    )


def _moments(w: BlockWriter, shard: Shard, dtype: DType) -> None:
    for name in ("exp_avg", "exp_avg_sq"):
        tensor = _tensor(shard, name, dtype, Category.OPTIMIZER)
        w.alloc(tensor, slot=w.shared("own", f"{name}.{shard.weight.name}"))
        w.launch(
            Elementwise(name=f"zeros {name}", kind="copy", read=0, written=tensor.requested),
            MODULE,
        )


class AdamWFused:
    """One multi-tensor kernel, no temporaries; the step counter lives on the device."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision

    def states(self, w: BlockWriter, shards: Sequence[Shard]) -> None:
        """Two moments and one fp32 step counter a parameter."""
        for shard in shards:
            counter = Tensor(
                name=f"{shard.weight.name}.step",
                shape=(1,),
                dtype=DType.FP32,
                category=Category.OPTIMIZER,
                module=MODULE,
            )
            w.alloc(counter, slot=w.shared("own", f"step.{shard.weight.name}"))
            _moments(w, shard, self.precision.moments)

    def passes(self) -> tuple[str, ...]:
        """One fused pass."""
        return ("fused",)

    def run_pass(self, w: BlockWriter, name: str, shards: Sequence[Shard]) -> None:
        """Reads parameter, gradient and both moments; writes all but the gradient."""
        numel = sum(shard.numel for shard in shards)
        parameter, moment = self.precision.parameters.itemsize, self.precision.moments.itemsize
        read = numel * (parameter + self.precision.gradients.itemsize + 2 * moment)
        written = numel * (parameter + 2 * moment)
        w.launch(
            Elementwise(name="adamw.fused", kind="optimizer", read=read, written=written), MODULE
        )


class AdamWForeach:
    """``_foreach_*`` passes over all parameters; the square root is one more copy of them.

    ``_multi_tensor_adamw``: the square roots of exp_avg_sq live from ``_foreach_sqrt`` to the end
    of the step, for the whole parameter group at once.
    """

    # (pass, tensors read, tensors written) of _multi_tensor_adamw without amsgrad, in order;
    # p parameter, g gradient, m moment (the temporary has the moments' dtype)
    PASSES = (
        ("weight_decay", "p", "p"),
        ("lerp exp_avg", "mg", "m"),
        ("mul exp_avg_sq", "m", "m"),
        ("addcmul exp_avg_sq", "mgg", "m"),
        ("sqrt", "m", "m"),
        ("div bias_correction", "m", "m"),
        ("add eps", "m", "m"),
        ("addcdiv", "pmm", "p"),
    )

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self._bytes = {
            "p": precision.parameters.itemsize,
            "g": precision.gradients.itemsize,
            "m": precision.moments.itemsize,
        }

    def states(self, w: BlockWriter, shards: Sequence[Shard]) -> None:
        """Two moments a parameter; step counters stay on the host."""
        for shard in shards:
            _moments(w, shard, self.precision.moments)

    def passes(self) -> tuple[str, ...]:
        """The foreach passes, then the end of the temporaries."""
        return (*(name for name, _, _ in self.PASSES), "release")

    def run_pass(self, w: BlockWriter, name: str, shards: Sequence[Shard]) -> None:
        """One ``_foreach_*`` call's part in this unit."""
        if name == "release":
            w.free_all(w.shared("own", f"sqrt.{shard.weight.name}") for shard in shards)
            return
        if name == "sqrt":
            for shard in shards:
                w.alloc(
                    _tensor(shard, "sqrt", self.precision.moments, Category.OPTIMIZER_TEMPORARIES),
                    slot=w.shared("own", f"sqrt.{shard.weight.name}"),
                )
        numel = sum(shard.numel for shard in shards)
        read, written = next(spec[1:] for spec in self.PASSES if spec[0] == name)
        w.launch(
            Elementwise(
                name=f"adamw.{name}",
                kind="optimizer",
                read=numel * sum(self._bytes[x] for x in read),
                written=numel * sum(self._bytes[x] for x in written),
            ),
            MODULE,
        )
