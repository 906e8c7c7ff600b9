"""A block compiled for memory: its net effect, its peak and where, by category. No clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.program.instructions import Alloc, Category, Free, Launch, Mark, Stream, Tensor
from simulator.program.program import Block

CATEGORIES = tuple(Category)
INDEX = {category: index for index, category in enumerate(CATEGORIES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMark:
    """A mark: live bytes relative to the call's start, and the compute launches before it.

    ``operations``: how many of the block's allocs and frees come before it.
    """

    name: str
    offset: int
    launches: int
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCurve:
    """Rows of a block's curve: launches and operations before each, bytes by category after it."""

    launches: NDArray[np.int64]
    operations: NDArray[np.int64]
    offsets: NDArray[np.int64]


class BlockMemory:
    """What calling a block does to live bytes, relative to the live bytes when the call starts.

    ``net``: bytes added by the call; ``peak``: highest offset at an allocation (-1: allocates
    nothing) and ``peak_at`` its instruction; ``by_category`` the non-zero net bytes.
    ``entry``: the tensors in the shared slots that the block frees without having allocated them.
    """

    def __init__(self, block: Block, entry: Mapping[int, Tensor]) -> None:
        self.block = block
        self.entry = entry
        self.net, self.peak, self.peak_at = 0, -1, 0
        totals = [0] * len(CATEGORIES)
        held = dict(entry)
        for index, instruction in enumerate(block.instructions):
            kind = type(instruction)
            if kind is Alloc:
                tensor = instruction.tensor  # type: ignore[union-attr]
                held[instruction.slot] = tensor  # type: ignore[union-attr]
                size = tensor.bytes
                totals[INDEX[tensor.category]] += size
                self.net += size
                if self.net > self.peak:
                    self.peak, self.peak_at = self.net, index
            elif kind is Free:
                tensor = held.pop(instruction.slot)  # type: ignore[union-attr]
                size = tensor.bytes
                totals[INDEX[tensor.category]] -= size
                self.net -= size
        self.by_category = tuple((i, size) for i, size in enumerate(totals) if size)
        self.held_at_end = {slot: tensor for slot, tensor in held.items() if slot not in entry}

    def replay_to(self, stop: int) -> tuple[list[int], dict[int, Tensor]]:
        """Category offsets and tensors by slot just after instruction ``stop``."""
        totals, held = [0] * len(CATEGORIES), dict(self.entry)
        for instruction in self.block.instructions[: stop + 1]:
            if isinstance(instruction, Alloc):
                held[instruction.slot] = instruction.tensor
                totals[INDEX[instruction.tensor.category]] += instruction.tensor.bytes
            elif isinstance(instruction, Free):
                tensor = held.pop(instruction.slot)
                totals[INDEX[tensor.category]] -= tensor.bytes
        return totals, held

    def launches_before(self, stop: int) -> int:
        """Compute launches before instruction ``stop``."""
        return sum(
            isinstance(instruction, Launch) and instruction.stream is Stream.COMPUTE
            for instruction in self.block.instructions[:stop]
        )

    @cached_property
    def marks(self) -> tuple[BlockMark, ...]:
        """Every mark in order."""
        offset = launches = operations = 0
        held = dict(self.entry)
        marks = []
        for instruction in self.block.instructions:
            if isinstance(instruction, Alloc):
                held[instruction.slot] = instruction.tensor
                offset += instruction.tensor.bytes
                operations += 1
            elif isinstance(instruction, Free):
                offset -= held.pop(instruction.slot).bytes
                operations += 1
            elif isinstance(instruction, Launch):
                launches += instruction.stream is Stream.COMPUTE
            elif isinstance(instruction, Mark):
                marks.append(
                    BlockMark(
                        name=instruction.name,
                        offset=offset,
                        launches=launches,
                        operations=operations,
                    )
                )
        return tuple(marks)

    @cached_property
    def curve(self) -> BlockCurve:
        """After each run of allocs or of frees."""
        totals, held = [0] * len(CATEGORIES), dict(self.entry)
        launches = operations = 0
        rows: list[tuple[int, ...]] = []
        places: list[tuple[int, int]] = []
        running: type | None = None
        for instruction in self.block.instructions:
            kind = type(instruction)
            if kind is Launch:
                launches += instruction.stream is Stream.COMPUTE  # type: ignore[union-attr]
            if kind not in (Alloc, Free):
                continue
            if kind is running:
                rows.pop(), places.pop()
            running = kind
            operations += 1
            if kind is Alloc:
                tensor = held[instruction.slot] = instruction.tensor  # type: ignore[union-attr]
                totals[INDEX[tensor.category]] += tensor.bytes
            else:
                tensor = held.pop(instruction.slot)  # type: ignore[union-attr]
                totals[INDEX[tensor.category]] -= tensor.bytes
            rows.append(tuple(totals))
            places.append((launches, operations))
        place = np.array(places, dtype=np.int64).reshape(len(places), 2)
        shape = (len(rows), len(CATEGORIES))
        return BlockCurve(
            launches=place[:, 0],
            operations=place[:, 1],
            offsets=np.array(rows, dtype=np.int64).reshape(shape),
        )

    def compute_launches(self, durations: Sequence[int] | None) -> NDArray[np.float64]:
        """Prefix sums of the compute stream's launches: of their durations, or of their count."""
        weights = [0.0]
        launches = (i for i in self.block.instructions if isinstance(i, Launch))
        for number, launch in enumerate(launches):
            if launch.stream is Stream.COMPUTE:
                weights.append(1.0 if durations is None else float(durations[number]))
        return np.cumsum(np.array(weights))


def freed_on_entry(block: Block) -> tuple[int, ...]:
    """Shared slots that the block frees without having allocated them."""
    allocated: set[int] = set()
    found = []
    for instruction in block.instructions:
        if isinstance(instruction, Alloc):
            allocated.add(instruction.slot)
        elif isinstance(instruction, Free) and instruction.slot not in allocated:
            found.append(instruction.slot)
    return tuple(found)
