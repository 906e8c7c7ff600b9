"""The keys of a scenario that this version honours, and what each may hold.

A default stands here as a user would write it. None means *left out*: the value then comes from
the preset, the topology or the size of the cluster. ``contract.py`` has the keys that are known
but not honoured yet.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from simulator.scenario.fields import choice, number, whole
from simulator.scenario.kinds import (
    Flag,
    Name,
    NumberBound,
    Rate,
    Seconds,
    Size,
    SizeBound,
    TimeBound,
    catalogued,
    check_precision,
    check_seq_len,
    check_whose,
    refuse_map,
)


class Section(BaseModel):
    """A map of the scenario: closed, and without conversions of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelSection(Section):
    """``model:``, a preset and the shape fields that differ from it."""

    preset: Annotated[str, catalogued("model")]
    layers: Annotated[int, whole(1, 10_000)] | None = None
    hidden: Annotated[int, whole(1, 1_000_000)] | None = None
    ffn: Annotated[int, whole(1, 10_000_000)] | None = None
    heads: Annotated[int, whole(1, 65_536)] | None = None
    kv_heads: Annotated[int, whole(1, 65_536)] | None = None
    vocab: Annotated[int, whole(1, 10_000_000)] | None = None
    head_dim: Annotated[int, whole(1, 65_536)] | None = None
    style: Annotated[str, choice(["torchtitan"], ["hf", "megatron"])] | None = None
    rms_norm: Annotated[str, choice(["fused", "composite"])] | None = None
    kv_expand: Flag | None = None


class ClusterSection(Section):
    """``cluster:``, what is booked."""

    topology: Annotated[str, catalogued("topology")]
    nodes: Annotated[int, whole(1, 100_000)] = 1
    gpus_per_node: Annotated[int, whole(1, 1_024)] | None = None
    gpu: Annotated[str, catalogued("gpu")] | None = None
    reserved: Size = Field(default="0 GiB", validate_default=True)


class FsdpSection(Section):
    """``parallelism.fsdp:``, FSDP2's knobs."""

    wrap: Annotated[str, choice(["torchtitan"], ["block", "none"])] = "torchtitan"
    reshard_after_forward: Flag = True
    reshard_last_block: Flag = True


class ParallelismSection(Section):
    """``parallelism:``, the framework and the axes of the mesh."""

    framework: Annotated[
        str, choice(["fsdp2"], ["single", "ddp", "fsdp1", "deepspeed", "megatron"])
    ]
    dp_shard: Annotated[int, whole(1, 100_000_000)] | None = None
    fsdp: FsdpSection = FsdpSection()


class OptimizerSection(Section):
    """``training.optimizer:``."""

    name: Annotated[
        str,
        choice(
            ["adamw"],
            ["adamw-8bit", "adamw-paged-8bit", "adafactor", "sgd", "lion", "muon", "adam"],
        ),
    ] = "adamw"
    implementation: Annotated[str, choice(["foreach", "fused"], ["for-loop"])] = "foreach"


class CheckpointingSection(Section):
    """``training.activation_checkpointing:``."""

    mode: Annotated[
        str,
        choice(
            ["none", "full", "selective-op"],
            ["megatron-selective", *(f"every-{n}" for n in range(1, 129))],
        ),
    ] = "none"


class TrainingSection(Section):
    """``training:``, one step of the job."""

    seq_len: Annotated[int, whole(1, 2**24), BeforeValidator(check_seq_len)]
    micro_batch: Annotated[int, whole(1, 65_536)]
    precision: Annotated[str, BeforeValidator(check_precision)] = "fsdp-mixed"
    optimizer: OptimizerSection = OptimizerSection()
    clip_grad_norm: Annotated[float, number(0, 1e9, above=True)] | None = None
    activation_checkpointing: CheckpointingSection = CheckpointingSection()
    attention: Annotated[
        str, choice(["flash"], ["flash-3", "cudnn", "efficient", "math", "eager"])
    ] = "flash"
    loss: Annotated[
        str,
        choice(["eager"], ["eager-kept-logits", "hf-upcast", "compiled", "fused-linear"]),
        BeforeValidator(refuse_map),
    ] = "eager"


class ExpectSection(Section):
    """``expect:``, comparisons that ``check`` holds the answer to."""

    fits: Flag | None = None
    peak_allocated: SizeBound | None = None
    peak_reserved: SizeBound | None = None
    step_time: TimeBound | None = None
    mfu: NumberBound | None = None
    tokens_per_s_per_gpu: NumberBound | None = None


class MeasuredSection(Section):
    """``measured:``, what a real run of this job showed."""

    peak_allocated: Size | None = None
    peak_active: Size | None = None
    peak_reserved: Size | None = None
    peak_device: Size | None = None
    host_peak: Size | None = None
    of: Annotated[str | int, BeforeValidator(check_whose)] = "max"
    tokens_per_s_per_gpu: Rate | None = None
    step_time: Seconds | None = None
    fits: Flag | None = None
    trust: Annotated[str, choice(["A", "B", "C"])] = "B"
    source: Name | None = None


SECTIONS: dict[str, type[Section]] = {
    "model": ModelSection,
    "cluster": ClusterSection,
    "parallelism": ParallelismSection,
    "training": TrainingSection,
    "expect": ExpectSection,
    "measured": MeasuredSection,
}
"""The maps at the top of a scenario; beside them stands ``name``."""


@cache
def section_paths() -> dict[tuple[str, ...], type[Section]]:
    """Every map that is honoured, nested ones too, by its path."""
    found: dict[tuple[str, ...], type[Section]] = {}
    waiting: list[tuple[tuple[str, ...], type[Section]]] = [
        ((name,), section) for name, section in SECTIONS.items()
    ]
    while waiting:
        path, section = waiting.pop()
        found[path] = section
        for name, entry in section.model_fields.items():
            inner = entry.annotation
            if isinstance(inner, type) and issubclass(inner, Section):
                waiting.append(((*path, name), inner))
    return found
