"""Around ``optimizer.step()`` over one flat partition: norm, cast, and the new weights for all.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19), ``step``, ``get_grad_norm_direct``,
``has_overflow``, ``unscale_and_clip_grads``; deepspeed/runtime/utils.py, ``all_gather_dp_groups``.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.deepspeed.setting import Setting
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Weight
from simulator.program.instructions import Category, Collective, Stream

MODULE = "optimizer"
GROUP = "dp_shard"
"""The axis of the mesh along which DeepSpeed splits data."""

NORM = DType.FP64
"""``get_norm_dtype``."""


def partition_shards(kind: Kind, numel: int, setting: Setting) -> tuple[Shard, ...]:
    """One rank's partition of the master copy as the optimizer's one parameter; it counts with the
    embedding's unit."""
    if kind.name != "embedding":
        return ()
    weight = Weight(name="master", shape=(numel,), module=MODULE)
    return (Shard(weight=weight, shape=(numel,), world=setting.ranks),)


def collective(
    w: BlockWriter, setting: Setting, kind: str, size: int, name: str, stream: Stream
) -> None:
    """Over all ranks, if there are several."""
    if setting.ranks > 1:
        w.collective(
            Collective(kind=kind, bytes=size, group=GROUP, stream=stream, name=name, module=MODULE)
        )


def host_reads(w: BlockWriter, what: str) -> None:
    """``.item()``: the host copies a number and waits for it."""
    number = w.alloc(flat(what, 1, DType.FP32, Category.OPTIMIZER_TEMPORARIES, MODULE))
    w.launch(Elementwise(name=what, kind="device_to_host", read=4, written=4), MODULE)
    event = w.local()
    w.record(event, Stream.COMPUTE)
    w.host_wait(event)
    w.free(number)


def write_norm(w: BlockWriter, setting: Setting, slices: Iterable[int], gradients: DType) -> None:
    """Each gradient is checked for overflow; then its norm is taken of a copy in double."""
    sizes = list(slices)
    for numel in sizes:
        size = numel * gradients.itemsize
        w.launch(Elementwise(name="overflow", kind="optimizer", read=2 * size, written=0), MODULE)
    collective(w, setting, "all_reduce", 1, "all_reduce grad_norm overflow", Stream.COMPUTE)
    host_reads(w, "overflow.item")
    for numel in sizes:
        double = flat("norm.double", numel, NORM, Category.OPTIMIZER_TEMPORARIES, MODULE)
        slot = w.alloc(double)
        w.launch(copy(double.name, numel * gradients.itemsize, double.requested), MODULE)
        w.launch(
            Elementwise(name="norm", kind="optimizer", read=double.requested, written=0), MODULE
        )
        w.free(slot)
    collective(w, setting, "all_reduce", 4, "all_reduce grad_norm", Stream.COMPUTE)
    host_reads(w, "norm.item")


def write_handed(
    w: BlockWriter, setting: Setting, numel: int, home: int, *, flattens: bool
) -> None:
    """The partition's gradients put end to end, if they are several, and cast into ``home``."""
    read, written = numel * setting.accumulation.itemsize, numel * setting.master.itemsize
    handed = flat("step.gradient", numel, setting.master, Category.OPTIMIZER_TEMPORARIES, MODULE)
    if setting.accumulation is setting.master:
        w.alloc(handed, slot=home)
        w.launch(copy("gradients.flatten", read, written), MODULE)
        return
    end_to_end = None
    if flattens:
        category = Category.OPTIMIZER_TEMPORARIES
        tensor = flat("gradients.flat", numel, setting.accumulation, category, MODULE)
        end_to_end = w.alloc(tensor)
        w.launch(copy("gradients.flatten", read, read), MODULE)
    w.alloc(handed, slot=home)
    w.launch(copy("gradients.cast", read, written), MODULE)
    if end_to_end is not None:
        w.free(end_to_end)


def write_unscaled(w: BlockWriter, setting: Setting, numel: int) -> None:
    """One pass over what the optimizer is handed."""
    if setting.unscales:
        size = numel * setting.master.itemsize
        w.launch(Elementwise(name="unscale", kind="optimizer", read=size, written=size), MODULE)


def write_new_weights(w: BlockWriter, setting: Setting, partition: int, numel: int) -> None:
    """The partition is cast back in place, and gathered in place from all ranks."""
    read, written = partition * setting.master.itemsize, partition * setting.model.itemsize
    w.launch(copy("weights.cast", read, written), MODULE)
    size = numel * setting.model.itemsize
    collective(w, setting, "all_gather", size, "all_gather weights", Stream.COMPUTE)
