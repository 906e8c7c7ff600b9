"""A compiled function as a list of kernels over buffers, and what it allocates and frees when.

Source: torch/_inductor/codegen/wrapper.py. A buffer is allocated right before the kernel that
writes it and freed after the last that reads it; a fused kernel writes into a buffer of the same
size that it is the last to read (``inplace_buffers``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from simulator.kernels import Elementwise, Kernel
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Tensor


@dataclass(slots=True, eq=False)
class Buffer:
    """One storage of a compiled function; ``slot``: where it lies, once it does.

    ``owned``: the function frees it.
    """

    tensor: Tensor
    slot: int | None = None
    owned: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel: what it reads and writes."""

    kernel: Kernel
    module: str
    reads: Sequence[Buffer]
    writes: Sequence[Buffer]
    fused: bool = False


def fused(
    name: str, kind: str, module: str, reads: Sequence[Buffer], writes: Sequence[Buffer]
) -> Step:
    """A fused kernel: each buffer that it needs is read and written once."""
    read = sum(buffer.tensor.requested for buffer in reads)
    written = sum(buffer.tensor.requested for buffer in writes)
    kernel = Elementwise(name=name, kind=kind, read=read, written=written)
    return Step(kernel=kernel, module=module, reads=reads, writes=writes, fused=True)


def write_steps(w: BlockWriter, steps: Sequence[Step], stays: Collection[Buffer]) -> None:
    """Issue ``steps``; the buffers of ``stays`` outlive them."""
    left: dict[Buffer, int] = {}
    for step in steps:
        for buffer in step.reads:
            left[buffer] = left.get(buffer, 0) + 1
    for step in steps:
        dying = []
        for buffer in step.reads:
            left[buffer] -= 1
            if not left[buffer] and buffer.owned and buffer not in stays:
                dying.append(buffer)
        for buffer in step.writes:
            if step.fused:
                _reuse(w, buffer, dying)
            buffer.slot = w.alloc(buffer.tensor, slot=buffer.slot)
        w.launch(step.kernel, step.module)
        dying += [each for each in step.writes if each not in left and each not in stays]
        w.free_all(_slot(buffer) for buffer in dying)


def _reuse(w: BlockWriter, buffer: Buffer, dying: list[Buffer]) -> None:
    for other in dying:
        if other.tensor.requested == buffer.tensor.requested:
            w.free(_slot(other))
            dying.remove(other)
            return


def _slot(buffer: Buffer) -> int:
    assert buffer.slot is not None
    return buffer.slot
