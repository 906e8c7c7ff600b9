"""Puts written blocks and bound calls together into a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.lowering.units import Unit
from simulator.lowering.writer import BlockWriter
from simulator.program.program import Block, Call, Phase, Program

Roles = Mapping[str, Unit | str]
"""Role -> the unit, or the label of something that is no unit (``step``, ``loss``)."""


class Assembly:
    """Writes each block once and binds its shared slots and events call by call."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._keys: list[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._calls: list[Call] = []
        self._registers: dict[tuple[str, str], int] = {}
        self._events: dict[tuple[str, str], int] = {}

    def call(
        self,
        key: tuple[object, ...],
        write: Callable[[BlockWriter], None],
        roles: Roles,
        *,
        phase: Phase,
        step: int,
        micro_batch: int = 0,
    ) -> None:
        """Call the block of ``key``, written by ``write`` the first time."""
        number = self._numbers.get(key)
        if number is None:
            number = self._write(key, write)
        labels = {
            role: unit if isinstance(unit, str) else unit.label for role, unit in roles.items()
        }
        own = roles.get("own")
        slots, events = self._keys[number]
        registers, event_numbers = self._registers, self._events
        self._calls.append(
            Call(
                block=number,
                registers=tuple(
                    registers.setdefault((labels[role], name), len(registers))
                    for role, name in slots
                ),
                events=tuple(
                    event_numbers.setdefault((labels[role], name), len(event_numbers))
                    for role, name in events
                ),
                phase=phase,
                step=step,
                micro_batch=micro_batch,
                layer=own.layer if isinstance(own, Unit) else None,
            )
        )

    def program(self, resident: Callable[[str], bool]) -> Program:
        """The whole program; ``resident`` says which register names may be live at the end."""
        names = tuple("/".join(key) for key in self._registers)
        return Program(
            blocks=tuple(self._blocks),
            calls=tuple(self._calls),
            registers=names,
            events=tuple("/".join(key) for key in self._events),
            resident=frozenset(i for i, name in enumerate(names) if resident(name)),
        )

    def _write(self, key: tuple[object, ...], write: Callable[[BlockWriter], None]) -> int:
        writer = BlockWriter(" ".join(str(part) for part in key if part is not None))
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


def _split(name: str) -> tuple[str, str]:
    role, _, rest = name.partition("/")
    return role, rest
