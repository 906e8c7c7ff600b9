"""Puts written blocks and bound calls together into a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from simulator.lowering.units import Unit
from simulator.lowering.writer import BlockWriter
from simulator.program.program import Block, Call, Phase, Program

Roles = Mapping[str, Unit | str]
"""Role -> the unit, or the label of something that is no unit (``step``, ``loss``)."""


Bound = tuple[tuple[int, ...], tuple[int, ...], Mapping[str, str]]
"""Registers, events and labels of a call."""


class Place(NamedTuple):
    """Where in the job a call stands."""

    phase: Phase
    step: int
    micro_batch: int = 0


class Assembly:
    """Writes each block once and binds its shared slots and events call by call."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._keys: list[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._calls: list[Call] = []
        self._registers: dict[tuple[str, str], int] = {}
        self._events: dict[tuple[str, str], int] = {}
        self._bound: dict[tuple[object, ...], Bound] = {}

    def call(
        self,
        key: tuple[object, ...],
        write: Callable[[BlockWriter], None],
        roles: Roles,
        place: Place,
    ) -> None:
        """Call the block of ``key``, written by ``write`` the first time."""
        number = self._numbers.get(key)
        if number is None:
            number = self._write(key, write)
        own = roles.get("own")
        registers, events, labels = self._bind(number, roles)
        self._calls.append(
            Call(
                block=number,
                registers=registers,
                events=events,
                phase=place.phase,
                step=place.step,
                micro_batch=place.micro_batch,
                layer=own.layer if isinstance(own, Unit) else None,
                labels=labels,
            )
        )

    def _bind(self, number: int, roles: Roles) -> Bound:
        """Registers and events of a call; the same block and roles bind the same in every step."""
        labels = {
            role: unit if isinstance(unit, str) else unit.label for role, unit in roles.items()
        }
        key = (number, *labels.values())
        found = self._bound.get(key)
        if found is None:
            slots, events = self._keys[number]
            found = self._bound[key] = (
                tuple([_number(self._registers, labels[role], name) for role, name in slots]),
                tuple([_number(self._events, labels[role], name) for role, name in events]),
                labels,
            )
        return found

    def program(self, *, resident: Collection[str], kept: str = "") -> Program:
        """The whole program; live at its end: ``resident``, by first words, and the ``kept``."""
        return Program(
            blocks=tuple(self._blocks),
            calls=tuple(self._calls),
            registers=tuple("/".join(key) for key in self._registers),
            events=tuple("/".join(key) for key in self._events),
            resident=frozenset(
                number
                for (label, name), number in self._registers.items()
                if label == kept or name.partition(".")[0] in resident
            ),
        )

    def _write(self, key: tuple[object, ...], write: Callable[[BlockWriter], None]) -> int:
        writer = BlockWriter(" ".join(part for part in key if isinstance(part, str)))
        write(writer)
        block = writer.finish()
        number = self._numbers[key] = len(self._blocks)
        self._blocks.append(block)
        self._keys.append(
            (
                tuple(_split(name) for name in block.parameters),
                tuple(_split(name) for name in block.event_parameters),
            )
        )
        return number


def _number(numbers: dict[tuple[str, str], int], label: str, name: str) -> int:
    return numbers.setdefault((label, name), len(numbers))


def _split(name: str) -> tuple[str, str]:
    role, _, rest = name.partition("/")
    return role, rest
