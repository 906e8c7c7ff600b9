"""Flat parameters (``FlatParamHandle``): the weights of one wrapped module end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.dtypes import DType
from simulator.lowering.framework.fsdp1.setting import Setting
from simulator.lowering.units import Kind, Unit
from simulator.model.graph import Weight

ALIGNMENT = 16
"""Bytes on which each original parameter starts (``_get_aligned_numel``)."""

ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One weight in a flat parameter. ``home``: role of the unit that computes with it."""

    weight: Weight
    home: str
    offset: int

    def within(self, numel: int) -> int:
        """How many of its elements are among the first ``numel`` of the flat parameter."""
        return max(0, min(numel, self.offset + self.weight.stored) - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatParameter:
    """What is gathered and reduced together.

    ``role`` names its registers, and ``name`` those of one that is nested in a unit; ``numel``:
    elements of the unsharded one; ``padding``: the pieces of it that align the members; ``first``
    and ``last``: the report's names of the modules at its ends. ``stored``: the shard's dtype.
    """

    role: str
    members: tuple[Member, ...]
    numel: int
    padding: tuple[int, ...]
    world: int
    first: str
    last: str
    stored: DType
    name: str = ""

    @property
    def trained(self) -> bool:
        """Whether it requires a gradient, which is then of all its members."""
        return any(member.weight.trainable for member in self.members)

    def register(self, what: str) -> str:
        """Name of one of its registers or events."""
        return f"{what}.{self.name}" if self.name else what

    @property
    def shard(self) -> int:
        """Elements of one rank's shard: as ``torch.chunk`` makes them, the last one padded."""
        return -(-self.numel // self.world)

    @property
    def padded(self) -> int:
        """Elements of what is gathered and reduced."""
        return self.shard * self.world

    def playing(self, role: str) -> FlatParameter:
        """The flat parameter of a unit that plays another role."""
        members = tuple(replace(member, home=role) for member in self.members)
        return replace(self, role=role, members=members)


def flat_of(kind: Kind, setting: Setting) -> FlatParameter:
    """A wrapped unit's own: of all its weights that no module nested in it wraps."""
    weights = [
        (weight, "own")
        for weight in kind.graph.weights
        if not weight.tied and not setting.nests(weight)
    ]
    ops = kind.graph.ops
    return _flatten("own", weights, setting, ops[0].module, ops[-1].module)


def nested_of(kind: Kind, setting: Setting) -> dict[int, FlatParameter]:
    """Those of the modules that are wrapped inside a unit, by the op that such a module is."""
    found = {}
    nested = {weight.name: weight for weight in kind.graph.weights if setting.nests(weight)}
    for index, op in enumerate(kind.graph.ops):
        for made in op.gradients:
            if made.weight in nested:
                weight = nested[made.weight]
                flat = _flatten("own", [(weight, "own")], setting, op.module, op.module)
                found[index] = replace(flat, name=weight.name, stored=setting.trained)
    return found


def root_flat(units: Sequence[Unit], setting: Setting) -> FlatParameter:
    """What no unit wraps, in registration order."""
    weights = [
        (weight, unit.label)
        for unit in units
        for weight in unit.kind.graph.weights
        if not unit.kind.wrapped and not weight.tied
    ]
    return _flatten(ROOT, weights, setting, "embed", "head")


def _flatten(
    role: str, weights: Sequence[tuple[Weight, str]], setting: Setting, first: str, last: str
) -> FlatParameter:
    """``_init_flat_param_and_metadata``: aligned members end on a multiple of the ranks."""
    members: list[Member] = []
    padding: list[int] = []
    end, aligned, world = 0, setting.original, setting.world
    for weight, home in weights:
        if aligned:
            end = _pad(end, ALIGNMENT // setting.compute.itemsize, padding)
        members.append(Member(weight=weight, home=home, offset=end))
        end += weight.stored
    if aligned:
        end = _pad(end, world, padding)
    return FlatParameter(
        role=role,
        members=tuple(members),
        numel=end,
        padding=tuple(padding),
        world=world,
        first=first,
        last=last,
        stored=setting.stored,
    )


def _pad(end: int, multiple: int, padding: list[int]) -> int:
    if end % multiple:
        padding.append(multiple - end % multiple)
        end += padding[-1]
    return end
