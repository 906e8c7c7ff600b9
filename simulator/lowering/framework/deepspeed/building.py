"""How DeepSpeed's engine takes a module over: cast, moved, flattened, and a master cut from it.

Source: deepspeed/runtime/engine.py (0.19), ``_configure_distributed_model``;
deepspeed/runtime/zero/stage_1_and_2.py, ``DeepSpeedZeroOptimizer.__init__``,
``initialize_optimizer_states``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.dtypes import DType
from simulator.lowering.assembly import Roles
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.deepspeed.flat import FlatGroup
from simulator.lowering.framework.deepspeed.setting import Setting
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Weight
from simulator.program.instructions import Category

ZERO = "zero"
"""Role and label of the registers that belong to the engine and to no module."""


def everyone(units: Sequence[Unit]) -> Roles:
    """The engine, and each unit by its label."""
    return {ZERO: ZERO, **{unit.label: unit for unit in units}}


def write_built(w: BlockWriter, setting: Setting, kind: Kind) -> None:
    """A unit's weights as its module makes them: in fp32 on the device, or on the host."""
    if setting.zero.built_on == "cuda":
        for weight in _own(kind):
            tensor = flat(weight.name, weight.numel, DType.FP32, Category.PARAMETERS, weight.module)
            w.alloc(tensor, slot=w.shared("own", f"built.{weight.name}"))


def write_taken_over(
    w: BlockWriter, setting: Setting, units: Sequence[Unit]
) -> Iterator[tuple[str, Weight, int]]:
    """Cast weight by weight, each in place of what was built: its unit's label, it, its slot."""
    for unit in units:
        for weight in _own(unit.kind):
            tensor = flat(
                weight.name, weight.numel, setting.model, Category.PARAMETERS, weight.module
            )
            built = w.shared(unit.label, f"built.{weight.name}")
            if setting.zero.built_on == "cuda" and setting.model is DType.FP32:
                yield unit.label, weight, built
                continue
            slot = w.alloc(tensor)
            w.launch(copy(f"{weight.name}.cast", tensor.requested, tensor.requested), weight.module)
            if setting.zero.built_on == "cuda":
                w.free(built)
            yield unit.label, weight, slot


def write_flattened(
    w: BlockWriter, setting: Setting, group: FlatGroup, units: Sequence[Unit]
) -> None:
    """``bit16_groups_flat``: while the weights are still there."""
    taken = [slot for *_, slot in write_taken_over(w, setting, units)]
    tensor = flat("weights", group.numel, setting.model, Category.PARAMETERS, "embed")
    w.alloc(tensor, slot=w.shared(ZERO, "shard.weights"))
    w.launch(copy("weights.flatten", tensor.requested, tensor.requested), "optimizer")
    w.free_all(taken)


def write_master(w: BlockWriter, setting: Setting, numel: int) -> None:
    """``single_partition_of_fp32_groups``: a clone of the partition, then cast."""
    clone = flat("partition", numel, setting.model, Category.OPTIMIZER_TEMPORARIES, "optimizer")
    master = flat("master", numel, setting.master, Category.OPTIMIZER, "optimizer")
    home = w.shared(ZERO, "shard.master")
    if setting.master is setting.model:
        w.alloc(master, slot=home)
        w.launch(copy("master.clone", clone.requested, master.requested), "optimizer")
        return
    cloned = w.alloc(clone)
    w.launch(copy("partition.clone", clone.requested, clone.requested), "optimizer")
    w.alloc(master, slot=home)
    w.launch(copy("master.cast", clone.requested, master.requested), "optimizer")
    w.free(cloned)


def write_zero_gradient(w: BlockWriter, setting: Setting, numel: int) -> None:
    """``initialize_optimizer_states`` makes a gradient of zeros, and drops it."""
    tensor = flat("zeros", numel, setting.master, Category.OPTIMIZER_TEMPORARIES, "optimizer")
    slot = w.alloc(tensor)
    w.launch(copy("zeros", 0, tensor.requested), "optimizer")
    w.free(slot)


def _own(kind: Kind) -> Iterator[Weight]:
    return (weight for weight in kind.graph.weights if not weight.tied)
