"""AdamW (arXiv:1711.05101) as torch runs it: torch/optim/adamw.py and adam.py (2.13)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.optimizer.tensors import MODULE, letters, pass_over, shard_tensor
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Precision
from simulator.program.instructions import Category, Tensor


def _moments(w: BlockWriter, shard: Shard, dtype: DType) -> None:
    for name in ("exp_avg", "exp_avg_sq"):
        tensor = shard_tensor(shard, name, dtype, Category.OPTIMIZER)
        w.alloc(tensor, slot=w.shared("own", f"{name}.{shard.weight.name}"))
        w.launch(
            Elementwise(name=f"zeros {name}", kind="copy", read=0, written=tensor.requested),
            MODULE,
        )


class _AdamW:
    """What the three ways of running it share."""

    def __init__(self, precision: Precision) -> None:
        self.precision, self.sizes = precision, letters(precision)

    def states(self, w: BlockWriter, shards: Sequence[Shard]) -> None:
        """Two moments a parameter; step counters stay on the host."""
        for shard in shards:
            _moments(w, shard, self.precision.moments)


class AdamWFused(_AdamW):
    """One multi-tensor kernel, no temporaries; the step counter lives on the device."""

    passes = ("fused",)

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

    def run_pass(
        self, w: BlockWriter, name: str, shards: Sequence[Shard], *, first: bool, last: bool
    ) -> None:
        """Reads parameter, gradient and both moments; writes all but the gradient."""
        w.launch(pass_over("adamw.fused", self.sizes, "pgmm", "pmm", shards), MODULE)


class AdamWForeach(_AdamW):
    """``_foreach_*`` passes over all parameters; the square root is one more copy of them.

    ``_multi_tensor_adamw``: the square roots of exp_avg_sq live from ``_foreach_sqrt`` to the end
    of the step, for the whole parameter group at once.
    """

    # (pass, read, written) of _multi_tensor_adamw without amsgrad, in order; letters as in
    # ``tensors.Letters`` (the temporary has the moments' dtype)
    STEPS = (
        ("weight_decay", "p", "p"),
        ("lerp exp_avg", "mg", "m"),
        ("mul exp_avg_sq", "m", "m"),
        ("addcmul exp_avg_sq", "mgg", "m"),
        ("sqrt", "m", "m"),
        ("div bias_correction", "m", "m"),
        ("add eps", "m", "m"),
        ("addcdiv", "pmm", "p"),
    )

    passes = (*(name for name, _, _ in STEPS), "release")

    def run_pass(
        self, w: BlockWriter, name: str, shards: Sequence[Shard], *, first: bool, last: bool
    ) -> None:
        """One ``_foreach_*`` call's part in this unit."""
        if name == "release":
            w.free_all(w.shared("own", f"sqrt.{shard.weight.name}") for shard in shards)
            return
        if name == "sqrt":
            dtype, category = self.precision.moments, Category.OPTIMIZER_TEMPORARIES
            for shard in shards:
                tensor = shard_tensor(shard, "sqrt", dtype, category)
                w.alloc(tensor, slot=w.shared("own", f"sqrt.{shard.weight.name}"))
        read, written = next(spec[1:] for spec in self.STEPS if spec[0] == name)
        w.launch(pass_over(f"adamw.{name}", self.sizes, read, written, shards), MODULE)


class AdamWForLoop(_AdamW):
    """``_single_tensor_adamw``: parameter by parameter, eight kernels and two temporaries each.

    The denominator of one parameter lives until the next one's square root is gone.
    """

    passes = ("for-loop",)

    def run_pass(
        self, w: BlockWriter, name: str, shards: Sequence[Shard], *, first: bool, last: bool
    ) -> None:
        """``denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)``, for each."""
        denominator = None if first else w.shared("previous", "denominator")
        for number, shard in enumerate(shards):
            denominator = self._one(w, shard, denominator, stays=number == len(shards) - 1)
        if last and denominator is not None:
            w.free(denominator)

    def _one(self, w: BlockWriter, shard: Shard, before: int | None, *, stays: bool) -> int:
        dtype, category = self.precision.moments, Category.OPTIMIZER_TEMPORARIES
        for name, read, written in AdamWForeach.STEPS[:4]:
            w.launch(pass_over(f"adamw.{name}", self.sizes, read, written, [shard]), MODULE)
        root = w.alloc(shard_tensor(shard, "sqrt", dtype, category))
        w.launch(pass_over("adamw.sqrt", self.sizes, "m", "m", [shard]), MODULE)
        denominator = w.alloc(
            shard_tensor(shard, "denominator", dtype, category),
            slot=w.shared("own", "denominator") if stays else None,
        )
        w.launch(pass_over("adamw.div", self.sizes, "m", "m", [shard]), MODULE)
        w.free(root)
        if before is not None:
            w.free(before)
        for name, read, written in AdamWForeach.STEPS[6:]:
            w.launch(pass_over(f"adamw.{name}", self.sizes, read, written, [shard]), MODULE)
        return denominator
