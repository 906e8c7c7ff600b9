"""A bucket that is reduced: its flat copy, its all-reduce, and what is kept of it.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19), ``reduce_ipg_grads``, ``average_tensor``,
``allreduce_bucket``, ``copy_grads_in_partition``, ``_build_compact_grad_partition_buffer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.deepspeed.bucketing import Chunk
from simulator.lowering.framework.deepspeed.building import ZERO
from simulator.lowering.framework.deepspeed.setting import Setting
from simulator.lowering.framework.deepspeed.stepping import MODULE, collective
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Stream, Tensor

PARTITION = "partition"
"""Register of the reduced gradients of this rank's weights."""

AGAIN = "partition.again"
"""Register of those of a later micro-step, until they are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducing:
    """One reduction, by what it does and not to whom.

    ``chunks`` are reduced one after the other. ``mine``: elements of each weight that lies in this
    rank's partition, whole or in part, that are copied to ``PARTITION``, or, ``compact``, added
    there in fp32; ``born``: that buffer's elements, if it is made now. ``drops``: role and
    register of gradients that go then.
    """

    chunks: tuple[Chunk, ...]
    mine: tuple[int, ...] = ()
    born: int = 0
    home: str = PARTITION
    drops: tuple[tuple[str, str], ...] = ()


def write_reducing(w: BlockWriter, setting: Setting, reducing: Reducing) -> None:
    """``reduce_ipg_grads``; with ``overlap_comm`` on a stream of its own, which the device's work
    so far waits for, and which then waits for the reductions before."""
    stream = setting.reduction
    if stream is not Stream.COMPUTE:
        w.wait_stream((stream,), Stream.COMPUTE)
        w.wait_stream((Stream.COMPUTE,), stream)
    if setting.compact and reducing.born:
        _born(w, setting, reducing, setting.accumulation, Stream.COMPUTE)
    for number, chunk in enumerate(reducing.chunks):
        last = number == len(reducing.chunks) - 1
        _write_chunk(w, setting, chunk, reducing.mine if last else (), stream)
    if not setting.compact:
        if reducing.born:
            _born(w, setting, reducing, setting.model, stream)
        for numel in reducing.mine:
            size = numel * setting.model.itemsize
            w.launch(copy("gradient.to_partition", size, size), MODULE, stream)
    w.free_all(w.shared(role, register) for role, register in reducing.drops)


def _born(
    w: BlockWriter, setting: Setting, reducing: Reducing, dtype: DType, stream: Stream
) -> None:
    tensor = flat("gradients", reducing.born, dtype, Category.GRADIENTS, MODULE)
    w.alloc(tensor, stream, slot=w.shared(ZERO, reducing.home))


def _write_chunk(
    w: BlockWriter, setting: Setting, chunk: Chunk, mine: Sequence[int], stream: Stream
) -> None:
    size = chunk.numel * setting.model.itemsize
    slot = None
    if chunk.copied:
        slot = w.alloc(_temporary("bucket.flat", chunk.numel, setting.model), stream)
        w.launch(copy("bucket.flatten", size, size), MODULE, stream)
    collective(w, setting, "all_reduce", size, "all_reduce bucket", stream)
    if setting.compact:
        for numel in mine:
            _add_up(w, setting, numel, stream)
    elif chunk.copied:
        w.launch(copy("bucket.copy_back", size, size), MODULE, stream)
    if slot is not None:
        w.free(slot)


def _add_up(w: BlockWriter, setting: Setting, numel: int, stream: Stream) -> None:
    """``output.add_(source.to(output.dtype))``."""
    tensor = _temporary("gradient.cast", numel, setting.accumulation)
    slot = w.alloc(tensor, stream)
    w.launch(copy(tensor.name, numel * setting.model.itemsize, tensor.requested), MODULE, stream)
    w.launch(copy("gradient.add", 2 * tensor.requested, tensor.requested), MODULE, stream)
    w.free(slot)


def _temporary(name: str, numel: int, dtype: DType) -> Tensor:
    return flat(name, numel, dtype, Category.REDUCE_SCATTER, MODULE)
