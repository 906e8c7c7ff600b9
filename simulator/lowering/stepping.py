"""``optimizer.step()`` over the units of a model, in parameter order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from simulator.lowering.assembly import Assembly, Place, Roles
from simulator.lowering.framework.hooks import ONE_ROUND, Round
from simulator.lowering.optimizer.op import IDLE, Group, Optimizer
from simulator.lowering.optimizer.writing import Steps, left_held, write_call, write_loop
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Tensor

Held = dict[str, tuple[Unit, Tensor]]
"""By variable of a loop: the unit whose registers hold its tensor."""


class Stepping:
    """Calls a block for each unit and group, or for each unit and call of a group.

    ``shards`` gives a unit's local parameters. Units of one graph share blocks. ``step`` is one
    ``optimizer.step()``, over the shards that its round takes.
    """

    def __init__(
        self,
        assembly: Assembly,
        optimizer: Optimizer,
        units: Sequence[Unit],
        shards: Callable[[Kind], Sequence[Shard]],
    ) -> None:
        self.a, self.optimizer, self.units, self._shards = assembly, optimizer, units, shards
        self._scripts: dict[tuple[str, str, str, bool], Steps] = {}
        self._left: dict[tuple[str, str, str, bool], Mapping[str, Tensor | None]] = {}
        self._round, self._first = ONE_ROUND[0], True
        self._stepped: set[str] = set()

    def step(self, place: Place, round_: Round = ONE_ROUND[0]) -> None:
        """All groups, one after the other."""
        self._round, self._first = round_, round_.name not in self._stepped
        self._stepped.add(round_.name)
        for group in self.optimizer:
            if self._first:
                self._births(place, group)
            if group.looped:
                self._loop(place, group)
            else:
                self._calls(place, group)

    def _births(self, place: Place, group: Group) -> None:
        shards = [shard for unit in self.units for shard in self._of(group, unit.kind)]
        once = group.once(shards)
        if once:
            write = partial(write_loop, steps=[(shards[0], once)])
            self.a.call(
                (group.name, "once", self._round.name), write, {"own": self.units[0]}, place
            )
        for unit in self.units:
            steps = [(shard, group.states(shard)) for shard in self._of(group, unit.kind)]
            if any(ops for _, ops in steps):
                key = (group.name, "states", self._round.name, unit.kind.graph.name)
                self.a.call(key, partial(write_loop, steps=steps), {"own": unit}, place)

    def _calls(self, place: Place, group: Group) -> None:
        """Every call of the group over all units before the next one."""
        first = self._first
        scripts = [(unit, self._script(group, unit.kind, first)) for unit in self.units]
        scripts = [(unit, steps) for unit, steps in scripts if steps]
        for number in range(max((len(steps[0][1]) for _, steps in scripts), default=0)):
            for unit, steps in scripts:
                ops = [(shard, ops[number]) for shard, ops in steps if ops[number] != IDLE]
                if not ops:
                    continue
                name, round_ = f"optimizer {group.name}", self._round.name
                key = (name, number, first, round_, unit.kind.graph.name)
                self.a.call(key, partial(write_call, ops=ops), {"own": unit}, place)

    def _loop(self, place: Place, group: Group) -> None:
        first, held = self._first, Held()
        for unit in self.units:
            steps = self._script(group, unit.kind, first)
            if not steps:
                continue
            name, round_ = f"optimizer {group.name}", self._round.name
            key = (name, first, round_, unit.kind.graph.name, *_sizes(held))
            write = partial(write_loop, steps=steps, held=tuple(held))
            self.a.call(key, write, {"own": unit, **_holders(held)}, place)
            self._rebind(held, unit, self._left[self._key(group, unit.kind, first)])
        if held:
            key = (f"optimizer {group.name}", "release", *_sizes(held))
            roles: Roles = {"own": self.units[0], **_holders(held)}
            self.a.call(key, partial(_release, names=tuple(held)), roles, place)

    @staticmethod
    def _rebind(held: Held, unit: Unit, left: Mapping[str, Tensor | None]) -> None:
        for name, tensor in left.items():
            held.pop(name, None)
            if tensor is not None:
                held[name] = (unit, tensor)

    def _script(self, group: Group, kind: Kind, first: bool) -> Steps:
        key = self._key(group, kind, first)
        if key not in self._scripts:
            steps = [(shard, group.step(shard, first)) for shard in self._of(group, kind)]
            self._scripts[key], self._left[key] = steps, left_held(steps) if group.looped else {}
        return self._scripts[key]

    def _key(self, group: Group, kind: Kind, first: bool) -> tuple[str, str, str, bool]:
        return group.name, self._round.name, kind.graph.name, first

    def _of(self, group: Group, kind: Kind) -> list[Shard]:
        takes = self._round.takes
        return [s for s in self._shards(kind) if takes(s) and group.takes(s)]


def _release(w: BlockWriter, names: Sequence[str]) -> None:
    w.free_all(w.shared(f"held.{name}", name) for name in names)


def _holders(held: Held) -> dict[str, Unit]:
    return {f"held.{name}": unit for name, (unit, _) in held.items()}


def _sizes(held: Held) -> tuple[object, ...]:
    return tuple((name, tensor.bytes) for name, (_, tensor) in held.items())
