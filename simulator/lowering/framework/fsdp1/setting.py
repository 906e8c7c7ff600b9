"""What FSDP1 needs to know of a plan: dtypes, ranks, and by what gradients are divided."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``reshards``: units drop their parameters after forward (FULL_SHARD and HYBRID_SHARD)."""

    stored: DType
    compute: DType
    reduce: DType
    world: int
    replicas: int
    reshards: bool
    original: bool
    limited: bool
    prefetch: str

    @property
    def casts(self) -> bool:
        """Whether shards are cast before they are gathered (``MixedPrecision.param_dtype``)."""
        return self.stored is not self.compute

    @property
    def divisors(self) -> tuple[int, int]:
        """By what gradients are divided before and after they are summed over all ranks.

        ``DefaultState._get_gradient_predivide_factor``: about the square root, a power of two.
        """
        ranks, before = self.world * self.replicas, 1
        while ranks % before == 0 and ranks / before > before:
            before *= 2
        return before, -(-ranks // before)


def setting_of(plan: Plan) -> Setting:
    """The setting of a plan."""
    precision, fsdp = plan.training.precision, plan.parallelism.fsdp
    return Setting(
        stored=precision.parameters,
        compute=precision.compute,
        reduce=precision.reduce,
        world=plan.parallelism.dp_shard,
        replicas=plan.parallelism.dp_replicate,
        reshards=fsdp.reshard_after_forward is not False,
        original=fsdp.use_orig_params,
        limited=fsdp.limit_all_gathers,
        prefetch=fsdp.backward_prefetch,
    )
