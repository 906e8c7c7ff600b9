"""What one micro-step of gradient accumulation does with gradients and gathered parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroStep:
    """One micro-step.

    ``reduce``: gradients are reduced over ranks (``set_requires_gradient_sync``); ``reshard``:
    gathered parameters go after backward (``set_reshard_after_backward``). What earlier
    micro-steps of the step left behind: ``accumulated``, unsharded gradients that were not
    reduced; ``summed``, reduced gradients; ``gathered``, parameters that stayed. ``births``: an
    optimizer that steps in backward makes its states. ``last``: the optimizer steps after it.
    """

    reduce: bool = True
    reshard: bool = True
    accumulated: bool = False
    summed: bool = False
    gathered: bool = False
    births: bool = False
    last: bool = True

    @property
    def later(self) -> bool:
        """Whether earlier micro-steps of the step left gradients."""
        return self.accumulated or self.summed


def micro_steps(plan: Plan, *, first: bool = False) -> Iterator[MicroStep]:
    """The micro-steps of one step, in order; the last one always reduces and reshards."""
    births = first and plan.training.optimizer_in_backward
    fsdp, count = plan.parallelism.fsdp, plan.training.grad_accum
    sync = fsdp.sync_every_micro_batch
    for number in range(count):
        last, later = number == count - 1, number > 0
        yield MicroStep(
            reduce=sync or last,
            reshard=fsdp.reshard_after_backward or last,
            accumulated=later and not sync,
            summed=later and sync,
            gathered=later and not fsdp.reshard_after_backward,
            births=births,
            last=last,
        )
