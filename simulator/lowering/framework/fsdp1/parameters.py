"""The flat parameters of a model: the root's, the units', and those nested in units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from simulator.lowering.framework.fsdp1.flat import (
    ROOT,
    FlatParameter,
    flat_of,
    nested_of,
    root_flat,
)
from simulator.lowering.framework.fsdp1.setting import Setting
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.model.graph import Weight


class Parameters:
    """All of them; units of one kind have the same."""

    def __init__(self, setting: Setting, units: Sequence[Unit]) -> None:
        self._setting, self._units = setting, units
        self.root = root_flat(units, setting)
        self._flats: dict[tuple[str, str], FlatParameter] = {}
        self._nested: dict[str, dict[int, FlatParameter]] = {}

    def own(self, kind: Kind, role: str = "own") -> FlatParameter:
        """The flat parameter of a wrapped unit in a role."""
        key = (kind.name, role)
        if key not in self._flats:
            self._flats[key] = flat_of(kind, self._setting).playing(role)
        return self._flats[key]

    def nested(self, kind: Kind) -> Mapping[int, FlatParameter]:
        """Those of the modules wrapped inside a unit, by op, in forward order."""
        if kind.name not in self._nested:
            self._nested[kind.name] = nested_of(kind, self._setting) if kind.wrapped else {}
        return self._nested[kind.name]

    def everyone(self) -> Iterator[FlatParameter]:
        """Each instance, by its unit's label, as modules are registered."""
        yield self.root
        for unit in self._units:
            if unit.kind.wrapped:
                for each in self._held_by(unit.kind):
                    yield replace(each, role=unit.label)

    def _held_by(self, kind: Kind) -> list[FlatParameter]:
        return [self.own(kind), *self.nested(kind).values()] if kind.wrapped else []

    def held_with(self, kind: Kind) -> list[FlatParameter]:
        """Those whose shards are a unit's; the root's come with the embedding's."""
        held = [self.root] if kind.name == "embedding" else []
        return [*held, *self._held_by(kind)]

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """What the optimizer steps: rank 0's parts of original parameters, or whole shards.

        The root's flat parameter is registered first of all, so it counts with the embedding.
        """
        if not self._setting.original:
            return tuple(
                Shard(weight=flat_weight(each), shape=(each.shard,), world=each.world)
                for each in self.held_with(kind)
                if each.trained
            )
        held = self._held_by(kind) if kind.wrapped else [self.root]
        return tuple(
            Shard(weight=m.weight, shape=(m.within(each.shard),), world=each.world)
            for each in held
            for m in each.members
            if m.weight in kind.graph.trained and m.within(each.shard)
        )


def flat_weight(parameter: FlatParameter) -> Weight:
    """A flat parameter as the optimizer sees it."""
    name = "root.flat_param" if parameter.role == ROOT else parameter.register("flat_param")
    return Weight(name=name, shape=(parameter.numel,), module=parameter.first)
