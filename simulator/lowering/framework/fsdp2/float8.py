"""Weights that are gathered in float8: torchao's ``fsdp_pre_all_gather``.

Each weight's shard is scaled by the largest magnitude over all ranks and cast before it is
gathered. The scale stays with the gathered parameter until the next gathering brings another;
here its place is there from the start, so before its first gathering a weight counts one number
too many. Source: torchao 0.18 float8/fsdp_utils.py, float8_utils.py ``tensor_to_scale``.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.fsdp2.groups import Group, Member, Setting
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Weight
from simulator.program.instructions import Category, Collective, Stream, Tensor

COPY_IN = Stream.ALL_GATHER_COPY_IN


def is_float8(member: Member) -> bool:
    """Whether a parameter is gathered in float8."""
    return member.shard.weight.gathered is DType.FP8


def alloc_scale(w: BlockWriter, weight: Weight) -> None:
    """The place of a gathered parameter's scale; none where it is gathered as other weights."""
    if weight.gathered is DType.FP8:
        scale = _number(weight, "scale", DType.FP32, Category.UNSHARDED_PARAMETERS)
        w.alloc(scale, slot=w.shared("own", f"scale.{weight.name}"))


def cast_shards(w: BlockWriter, setting: Setting, group: Group) -> list[int]:
    """The float8 shards of a group; each new scale waits for ``replace_scales``."""
    return [_cast(w, setting, group, member) for member in group.members if is_float8(member)]


def replace_scales(w: BlockWriter, group: Group) -> None:
    """``fsdp_post_all_gather`` hands the new scales over, and the old ones go."""
    w.free_all(w.shared(m.home, f"new_scale.{m.name}") for m in group.members if is_float8(m))


def _cast(w: BlockWriter, setting: Setting, group: Group, member: Member) -> int:
    weight, shard, stored = member.shard.weight, member.shard, setting.stored
    size = shard.numel * stored.itemsize
    _scale(w, member, stored, size)
    wide = size // stored.itemsize * DType.FP32.itemsize
    copied = None
    if stored is not DType.FP32:
        copied = w.alloc(_like(member, "float", DType.FP32), COPY_IN)
        w.launch(copy("float8.float", size, wide), weight.module, COPY_IN)
    scaled = w.alloc(_like(member, "scaled", DType.FP32), COPY_IN)
    w.launch(copy("float8.scale", wide, wide), weight.module, COPY_IN)
    if copied is not None:
        w.free(copied)
    clamped = w.alloc(_like(member, "clamped", DType.FP32), COPY_IN)
    w.launch(copy("float8.clamp", wide, wide), weight.module, COPY_IN)
    bits = w.alloc(_like(member, "float8", DType.FP8), COPY_IN)
    w.launch(copy("float8.cast", wide, shard.numel), weight.module, COPY_IN)
    w.free_all((clamped, scaled))
    return bits


def _scale(w: BlockWriter, member: Member, stored: DType, size: int) -> None:
    """``tensor_to_scale`` with ``reduce_amax``: the largest magnitude, then five small kernels."""
    weight = member.shard.weight
    magnitudes = w.alloc(_like(member, "abs", stored), COPY_IN)
    w.launch(copy("float8.abs", size, size), weight.module, COPY_IN)

    def number(name: str, dtype: DType) -> int:
        slot = w.alloc(_number(weight, name, dtype, Category.ALL_GATHER), COPY_IN)
        w.launch(copy(f"float8.{name}", dtype.itemsize, dtype.itemsize), weight.module, COPY_IN)
        return slot

    own = number("max", stored)
    w.free(magnitudes)
    largest = w.alloc(_number(weight, "max.reduced", stored, Category.ALL_GATHER), COPY_IN)
    w.collective(
        Collective(
            kind="all_reduce",
            bytes=stored.itemsize,
            group="dp_shard",
            stream=COPY_IN,
            name=f"all_reduce scale of {weight.name}",
            module=weight.module,
        )
    )
    w.free(own)
    wide, clamped, reciprocal, product = (
        number(name, DType.FP64) for name in ("float64", "clamped", "reciprocal", "product")
    )
    w.free_all((reciprocal, clamped))
    scale = _number(weight, "new_scale", DType.FP32, Category.ALL_GATHER)
    w.alloc(scale, COPY_IN, slot=w.shared(member.home, f"new_scale.{member.name}"))
    w.launch(copy("float8.scale", 8, 4), weight.module, COPY_IN)
    w.free_all((product, wide, largest))


def _like(member: Member, name: str, dtype: DType) -> Tensor:
    module = member.shard.weight.module
    return flat(f"{member.name}.{name}", member.shard.numel, dtype, Category.ALL_GATHER, module)


def _number(weight: Weight, name: str, dtype: DType, category: Category) -> Tensor:
    return flat(f"{weight.name}.{name}", 1, dtype, category, weight.module)
