"""Parameter groups (``FSDPParamGroup``): what is gathered and reduced together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.dtypes import DType
from simulator.lowering.shards import Shard, shards_of
from simulator.lowering.units import Kind, Unit
from simulator.model.graph import Weight
from simulator.plan.plan import Plan, Precision
from simulator.plan.versions import Fsdp2Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One parameter of a group; ``home`` is the role of the unit whose registers hold it."""

    shard: Shard
    home: str

    @property
    def name(self) -> str:
        """The parameter's name in its unit."""
        return self.shard.weight.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One all-gather and one reduce-scatter.

    ``role`` names its buffers' registers; ``first`` and ``last`` are the report's names of the
    modules at its ends.
    """

    role: str
    fqn: str
    members: tuple[Member, ...]
    first: str
    last: str

    @property
    def numel(self) -> int:
        """Elements of one rank's shards, padding included."""
        return sum(member.shard.numel for member in self.members)

    @property
    def trained(self) -> Group:
        """The group without its frozen parameters, which get no gradients."""
        members = tuple(member for member in self.members if member.shard.weight.trainable)
        return replace(self, members=members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What every hook needs to know of the plan: dtypes and how many ranks share."""

    stored: DType
    compute: DType
    reduce: DType
    gradient: DType
    world: int
    replicas: int
    offload: bool
    rules: Fsdp2Rules

    def stored_of(self, weight: Weight) -> DType:
        """The dtype that a weight's shard is stored in."""
        return weight.dtype or self.stored

    def compute_of(self, weight: Weight) -> DType:
        """The dtype that a weight is gathered in."""
        return weight.gathered or weight.dtype or self.compute

    def casts_one(self, weight: Weight) -> bool:
        """Whether a weight's shard is cast as ``mp_policy.param_dtype`` says."""
        return self.casts and weight.dtype is None and weight.gathered is None

    def gathered_bytes(self, group: Group) -> int:
        """Bytes of a group's gathered parameters, padding included."""
        return sum(
            member.shard.padded * self.compute_of(member.shard.weight).itemsize
            for member in group.members
        )

    @property
    def gathers(self) -> bool:
        """Whether parameters are gathered into a buffer; alone in the world shards are copied."""
        return self.world > 1 or self.rules.gathers_alone

    @property
    def casts(self) -> bool:
        """Whether shards are cast before they are gathered (``mp_policy.param_dtype``)."""
        return self.stored is not self.compute


def setting_of(plan: Plan, precision: Precision) -> Setting:
    """The setting of a plan, for parameters of that precision."""
    parallelism = plan.parallelism
    return Setting(
        stored=precision.parameters,
        compute=precision.compute,
        reduce=precision.reduce,
        gradient=precision.gradients,
        world=parallelism.dp_shard,
        replicas=parallelism.dp_replicate,
        offload=plan.offload_parameters,
        rules=parallelism.fsdp.rules,
    )


def own_group(kind: Kind, world: int, role: str = "own") -> Group:
    """The group of a wrapped unit that plays ``role``."""
    return Group(
        role=role,
        fqn=kind.fqn,
        members=tuple(Member(shard=s, home=role) for s in shards_of(kind.graph, world)),
        first=kind.graph.ops[0].module,
        last=kind.graph.ops[-1].module,
    )


def root_group(units: Sequence[Unit], world: int) -> Group | None:
    """What no unit wraps, in registration order; None if nothing is left."""
    left = [unit for unit in units if not unit.kind.wrapped]
    if not left:
        return None
    return Group(
        role="root",
        fqn="root",
        members=tuple(
            Member(shard=shard, home=unit.label)
            for unit in left
            for shard in shards_of(unit.kind.graph, world)
        ),
        first="embed",
        last="head",
    )
