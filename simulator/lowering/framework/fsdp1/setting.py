"""What FSDP1 needs to know of a plan: dtypes, ranks, and by what gradients are divided."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.lowering.units import PEFT
from simulator.model.graph import Weight
from simulator.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``reshards``: units drop their parameters after forward (FULL_SHARD and HYBRID_SHARD).

    ``stored`` is the dtype of the shards, ``trained`` that of nested units', which ``nested`` says
    there are: each trained leaf of a block is a unit (peft's ``fsdp_auto_wrap_policy``).
    """

    stored: DType
    trained: DType
    compute: DType
    reduce: DType
    world: int
    replicas: int
    reshards: bool
    original: bool
    limited: bool
    prefetch: str
    nested: bool

    def upcasts(self, stored: DType) -> bool:
        """Whether original parameters view a shard that was upcast when all was wrapped.

        accelerate's ``prepare_model`` casts flat parameters that are trained to fp32; their views
        are made anew in the first forward.
        """
        return self.original and stored is not self.stored

    def nests(self, weight: Weight) -> bool:
        """Whether a block's weight has a unit of its own."""
        return self.nested and weight.trainable

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
        trained=plan.training.trained_precision.parameters,
        compute=precision.compute,
        reduce=precision.reduce,
        world=plan.parallelism.dp_shard,
        replicas=plan.parallelism.dp_replicate,
        reshards=fsdp.reshard_after_forward is not False,
        original=fsdp.use_orig_params,
        limited=fsdp.limit_all_gathers,
        prefetch=fsdp.backward_prefetch,
        nested=fsdp.wrap == PEFT,
    )
