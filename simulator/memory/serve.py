"""A program's requests, served one by one in host order by the caching allocator.

What the allocator does next depends on all that it did before, so the flat listing is walked; a
block is turned into plain numbers once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.kernels import Gemm, GroupedGemm
from simulator.memory.caching_allocator import CachingAllocator, Device, OutOfMemoryError, Settings
from simulator.memory.caching_allocator.block import Block as Chunk
from simulator.program.instructions import Alloc, Free, Launch, Stream
from simulator.program.program import Block, Call, Phase, Program

UNBOUNDED = 1 << 44
"""Bytes of the device that a run goes on with, once its own was too small."""

PRODUCTS = (Gemm, GroupedGemm)
"""Kernels that cuBLAS runs."""

STREAMS = {stream: number for number, stream in enumerate(Stream)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What serves the requests.

    ``capacity``: bytes of the device that the allocator can have (None: no end). ``workspace``:
    bytes that cuBLAS asks for with its first product in a thread; the forward pass runs in one
    thread, the backward pass in another (``getCurrentCUDABlasHandle``, CublasHandlePool.cpp).
    """

    settings: Settings
    capacity: int | None = None
    workspace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The first request that found neither a block nor memory, in bytes; where it was made.

    ``free``: what the device had left; ``reserved``, ``allocated``: the allocator's own then.
    """

    call: int
    instruction: int
    requested: int
    free: int
    reserved: int
    allocated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The allocator's counters after each request and return, in bytes.

    ``begins[k]`` is the first row of call k; the row before it is where the call starts.
    ``workspaces`` are the rounded bytes of each workspace with the call that they come before.
    ``retries``: by step, how often everything cached was given back to find room.
    """

    begins: NDArray[np.int64]
    allocated: NDArray[np.int64]
    reserved: NDArray[np.int64]
    workspaces: tuple[tuple[int, int], ...]
    retries: tuple[int, ...]
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Requests:
    """A block as numbers: (bytes or -1 to free, slot, stream, instruction).

    A slot of the call alone is numbered from -1 down.
    """

    rows: tuple[tuple[int, int, int, int], ...]
    locals: int
    multiplies: bool

    @staticmethod
    def of(block: Block) -> Requests:
        """Keep what the allocator sees."""
        rows: list[tuple[int, int, int, int]] = []
        local: dict[int, int] = {}
        multiplies = False
        for index, instruction in enumerate(block.instructions):
            if isinstance(instruction, Alloc | Free):
                slot = instruction.slot
                if slot >= len(block.parameters):
                    slot = local.setdefault(slot, -1 - len(local))
                if isinstance(instruction, Alloc):
                    stream = STREAMS[instruction.stream]
                    rows.append((instruction.tensor.requested, slot, stream, index))
                else:
                    rows.append((-1, slot, 0, index))
            elif isinstance(instruction, Launch):
                multiplies = multiplies or isinstance(instruction.kernel, PRODUCTS)
        return Requests(tuple(rows), len(local), multiplies)


def serve(program: Program, serving: Serving) -> Served:
    """Walk ``program`` once. Running out is noted, and the run goes on without an end."""
    return _Walk(program, serving).served()


class _Walk:
    def __init__(self, program: Program, serving: Serving) -> None:
        self.program, self.serving = program, serving
        capacity = UNBOUNDED if serving.capacity is None else serving.capacity
        self.device = Device(total=capacity)
        self.allocator = CachingAllocator(serving.settings, self.device)
        self.held: list[Chunk | None] = [None] * len(program.registers)
        self.allocated: list[int] = []
        self.reserved: list[int] = []
        self.workspaces: list[tuple[int, int]] = []
        self.without = {Phase.FORWARD, Phase.BACKWARD} if serving.workspace else set[Phase]()
        self.refusal: Refusal | None = None

    def served(self) -> Served:
        begins, retries = [], dict[int, int]()
        compiled = {c: Requests.of(self.program.blocks[c]) for c in self._used()}
        for index, call in enumerate(self.program.calls):
            requests = compiled[call.block]
            if call.phase in self.without and requests.multiplies:
                self._workspace(index, call)
            begins.append(len(self.allocated))
            before = self.allocator.counters.retries
            self._call(index, call.registers, requests)
            more = self.allocator.counters.retries - before
            retries[call.step] = retries.get(call.step, 0) + more
        return Served(
            begins=np.array(begins, dtype=np.int64),
            allocated=np.array(self.allocated, dtype=np.int64),
            reserved=np.array(self.reserved, dtype=np.int64),
            workspaces=tuple(self.workspaces),
            retries=tuple(retries[step] for step in sorted(retries)),
            refusal=self.refusal,
        )

    def _used(self) -> list[int]:
        return sorted({call.block for call in self.program.calls})

    def _workspace(self, index: int, call: Call) -> None:
        """A thread's first product; the workspace stays."""
        self.without.discard(call.phase)
        block = self._ask(self.serving.workspace, STREAMS[Stream.COMPUTE], index, 0)
        self.workspaces.append((index, block.size))

    def _call(self, index: int, registers: Sequence[int], requests: Requests) -> None:
        allocator, counters, held = self.allocator, self.allocator.counters, self.held
        malloc, free = allocator.malloc, allocator.free
        local: list[Chunk | None] = [None] * requests.locals
        add_allocated, add_reserved = self.allocated.append, self.reserved.append
        for size, slot, stream, instruction in requests.rows:
            if size > 0:
                try:
                    block = malloc(size, stream)
                except OutOfMemoryError as error:
                    block = self._go_on(error, stream, index, instruction)
                if slot < 0:
                    local[slot] = block
                else:
                    held[registers[slot]] = block
            elif size < 0:
                if slot < 0:
                    freed, local[slot] = local[slot], None
                else:
                    freed, held[registers[slot]] = held[registers[slot]], None
                if freed is not None:  # a request for nothing makes no block
                    free(freed)
            add_allocated(counters.allocated)
            add_reserved(counters.reserved)

    def _ask(self, size: int, stream: int, index: int, instruction: int) -> Chunk:
        try:
            return self.allocator.malloc(size, stream)
        except OutOfMemoryError as error:
            return self._go_on(error, stream, index, instruction)

    def _go_on(self, error: OutOfMemoryError, stream: int, index: int, instruction: int) -> Chunk:
        """Note the refusal, once, and serve the request from a device without an end."""
        self.refusal = Refusal(
            call=index,
            instruction=instruction,
            requested=error.requested,
            free=error.free,
            reserved=error.reserved,
            allocated=error.allocated,
        )
        self.device.total = UNBOUNDED
        return self.allocator.malloc(error.requested, stream)
