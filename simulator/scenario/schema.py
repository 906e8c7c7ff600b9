"""The keys of a scenario that this version honours, and what each may hold.

A default stands here as a user would write it. None means *left out*: the value then comes from
the preset, the topology, the size of the cluster or the version of a library. ``contract.py`` has
the keys that are known but not honoured yet.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from simulator.lowering.policy import MODULES
from simulator.plan.zero import BUILT_ON
from simulator.scenario.fields import choice, elements, number, whole
from simulator.scenario.kinds import (
    Date,
    Flag,
    MeasuredSize,
    MeasuredTime,
    Name,
    NumberBound,
    Rate,
    Size,
    SizeBound,
    TimeBound,
    Version,
    catalogued,
    dtypes,
    listed,
    losses,
    modules,
    one_length,
    operator,
    patterns,
    slices,
    whose,
)


class Section(BaseModel):
    """A map of the scenario: closed, and without conversions of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SoftwareSection(Section):
    """``software:``, versions that pick rules; what is left out is picked by ``as_of``."""

    torch: Version | None = None
    transformers: Version | None = None
    nccl: Version | None = None
    deepspeed: Version | None = None
    megatron: Version | None = None
    bitsandbytes: Version | None = None


class ModelSection(Section):
    """``model:``, a preset or a config.json, and the shape fields that differ from it."""

    preset: Annotated[str, catalogued("model")] | None = None
    hf_config: Name | None = None
    layers: Annotated[int, whole(1, 10_000)] | None = None
    hidden: Annotated[int, whole(1, 1_000_000)] | None = None
    ffn: Annotated[int, whole(1, 10_000_000)] | None = None
    heads: Annotated[int, whole(1, 65_536)] | None = None
    kv_heads: Annotated[int, whole(1, 65_536)] | None = None
    vocab: Annotated[int, whole(1, 10_000_000)] | None = None
    head_dim: Annotated[int, whole(1, 65_536)] | None = None
    experts: Annotated[int, whole(1, 65_536)] | None = None
    experts_per_token: Annotated[int, whole(1, 65_536)] | None = None
    expert_ffn: Annotated[int, whole(1, 10_000_000)] | None = None
    experts_implementation: Annotated[str, choice(["grouped_mm", "eager"])] | None = None
    shared_ffn: Annotated[int, whole(1, 10_000_000)] | None = None
    dense_layers: Annotated[int, whole(0, 10_000)] | None = None
    expert_groups: Annotated[int, whole(1, 65_536)] | None = None
    topk_groups: Annotated[int, whole(1, 65_536)] | None = None
    q_rank: Annotated[int, whole(0, 1_000_000)] | None = None
    kv_rank: Annotated[int, whole(1, 1_000_000)] | None = None
    rope_head_dim: Annotated[int, whole(2, 65_536)] | None = None
    v_head_dim: Annotated[int, whole(1, 65_536)] | None = None
    window: Annotated[int, whole(1, 2**24)] | None = None
    style: Annotated[str, choice(["torchtitan", "hf"], ["megatron"])] | None = None
    rms_norm: Annotated[str, choice(["fused", "composite"])] | None = None
    kv_expand: Flag | None = None
    dropout: Annotated[float, number(0, 0.999)] | None = None


class ClusterSection(Section):
    """``cluster:``, what is booked."""

    topology: Annotated[str, catalogued("topology")]
    nodes: Annotated[int, whole(1, 65_536)] = 1
    gpus_per_node: Annotated[int, whole(1, 1_024)] | None = None
    gpu: Annotated[str, catalogued("gpu")] | None = None
    reserved: Size = Field(default="0 GiB", validate_default=True)


class FsdpSection(Section):
    """``parallelism.fsdp:``, FSDP's knobs; the last three are FSDP1's."""

    wrap: Annotated[Any, patterns(["torchtitan", "block", "peft", "none"])] = None
    reshard_after_forward: Annotated[bool | int, slices()] = True
    reshard_last_block: Flag | None = None
    reshard_after_backward: Flag = True
    sync_every_micro_batch: Flag = True
    forward_prefetch: Annotated[int, whole(0, 10_000)] = 0
    backward_prefetch: Annotated[str, choice(["pre", "post", "none"])] = "pre"
    limit_all_gathers: Flag = True
    use_orig_params: Flag | None = None


class DdpSection(Section):
    """``parallelism.ddp:``, DDP's knobs."""

    bucket_cap: MeasuredSize = Field(default="25 MiB", validate_default=True)
    gradient_as_bucket_view: Flag = False


class ZeroSection(Section):
    """``parallelism.zero:``, DeepSpeed's ``zero_optimization`` by its own names, in elements."""

    stage: Annotated[int, whole(0, 3)] = 3
    overlap_comm: Flag | None = None
    contiguous_gradients: Flag = True
    reduce_scatter: Flag = True
    round_robin_gradients: Flag = False
    reduce_bucket_size: Annotated[Any, elements(1)] = 500_000_000
    allgather_bucket_size: Annotated[Any, elements(1)] = 500_000_000
    stage3_prefetch_bucket_size: Annotated[Any, elements()] = 50_000_000
    stage3_param_persistence_threshold: Annotated[Any, elements()] = 100_000
    stage3_max_live_parameters: Annotated[Any, elements()] = 1_000_000_000
    stage3_max_reuse_distance: Annotated[Any, elements()] = 1_000_000_000
    stage3_allgather_sequential: Flag = False
    sub_group_size: Annotated[Any, elements(1)] = 1_000_000_000
    built_on: Annotated[str, choice(BUILT_ON)] | None = None


class ParallelismSection(Section):
    """``parallelism:``, the framework and the axes of the mesh."""

    framework: Annotated[
        str, choice(["fsdp2", "fsdp1", "ddp", "deepspeed", "single"], ["megatron"])
    ]
    dp_replicate: Annotated[int, whole(1, 100_000_000)] | None = None
    dp_shard: Annotated[int, whole(1, 100_000_000)] | None = None
    fsdp: FsdpSection = FsdpSection()
    ddp: DdpSection = DdpSection()
    zero: ZeroSection = ZeroSection()


OPTIMIZER_NAMES = (
    "adamw",
    "adam",
    "sgd",
    "adafactor",
    "lion",
    "lion-8bit",
    "muon",
    "adamw-8bit",
    "adamw-paged-8bit",
    "adamw-torchao-8bit",
    "adamw-4bit",
    "adamw-fp8",
)
"""Those of ``lowering.optimizer``, which is not loaded to read a scenario."""


class OptimizerSection(Section):
    """``training.optimizer:``."""

    name: Annotated[str, choice(OPTIMIZER_NAMES)] = "adamw"
    implementation: Annotated[str, choice(["foreach", "fused", "for-loop"])] | None = None
    in_backward: Flag = False
    weight_decay: Annotated[float, number(0, 1e3)] | None = None
    momentum: Annotated[float, number(0, 1)] | None = None
    amsgrad: Flag = False


_MODES = ("none", "full", "selective-op", "megatron-selective")
_LATER_MODULES = ("moe", "moe_act", "shared_experts", "mla_up_proj")


class CheckpointingSection(Section):
    """``training.activation_checkpointing:``."""

    mode: Annotated[
        str,
        choice(
            [*_MODES, *(f"every-{n}" for n in range(2, 129))],
            shown=[*_MODES, "every-2 to every-128"],
        ),
    ] = "none"
    early_stop: Flag = True
    offload: Flag = False
    reentrant: Flag = False
    save: Annotated[Any, listed(operator())] = None
    modules: Annotated[Any, listed(choice(MODULES, _LATER_MODULES))] = None


class FineTuningSection(Section):
    """``training.fine_tuning:``, what of the model is trained."""

    method: Annotated[str, choice(["full", "lora"])] = "full"
    rank: Annotated[int, whole(1, 65_536)] = 16
    targets: Annotated[Any, modules()] = ("q", "v")
    dropout: Annotated[float, number(0, 0.999)] = 0.0
    adapters: Annotated[str, choice(["fp32", "bf16"])] | None = None
    dora: Flag = False
    rank_stabilized: Flag = False
    norms: Annotated[str, choice(["fp32"])] | None = None
    base: Annotated[str, choice(["nf4"])] | None = None
    double_quant: Flag = True
    also_train: Annotated[Any, modules()] = ()
    freeze: Annotated[Any, modules()] = ()


_ATTENTION = ("flash", "flash-2", "efficient", "eager")
_LATER_ATTENTION = ("flash-3", "cudnn", "math")


class TrainingSection(Section):
    """``training:``, one step of the job."""

    seq_len: Annotated[int, one_length(2**24)]
    micro_batch: Annotated[int, whole(1, 65_536)]
    packing: Annotated[str, choice(["packed", "padded", "full"])] = "packed"
    grad_accum: Annotated[int, whole(1, 65_536)] | None = None
    global_batch: Annotated[int, whole(1, 10**12)] | None = None
    precision: Annotated[Any, dtypes()] = None
    optimizer: OptimizerSection = OptimizerSection()
    clip_grad_norm: Annotated[float, number(0, 1e9, above=True)] | None = None
    activation_checkpointing: CheckpointingSection = CheckpointingSection()
    attention: Annotated[str, choice(_ATTENTION, _LATER_ATTENTION)] | None = None
    fine_tuning: FineTuningSection = FineTuningSection()
    loss: (
        Annotated[
            Any,
            losses(
                [
                    "eager",
                    "eager-kept-logits",
                    "hf-upcast",
                    "hf-upcast-dropped-logits",
                    "hf-upcast-triton",
                    "hf-shifted-logits",
                    "compiled",
                    "fused-linear",
                ],
                ["chunked", "chunked-head"],
            ),
        ]
        | None
    ) = None
    compile: Annotated[str, choice(["none", "block"], ["model"])] = "none"


class OffloadSection(Section):
    """``offload:``, what lies in host memory: FSDP2's CPUOffloadPolicy moves all or nothing."""

    parameters: Annotated[str, choice(["none", "host"], ["nvme"])] = "none"
    gradients: Annotated[str, choice(["none", "host"], ["nvme"])] | None = None
    optimizer: Annotated[str, choice(["none", "host"], ["nvme"])] | None = None


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

    peak_allocated: MeasuredSize | None = None
    peak_active: MeasuredSize | None = None
    peak_reserved: MeasuredSize | None = None
    peak_device: MeasuredSize | None = None
    host_peak: MeasuredSize | None = None
    of: Annotated[str | int, whose()] = "max"
    tokens_per_s_per_gpu: Rate | None = None
    step_time: MeasuredTime | None = None
    fits: Flag | None = None
    trust: Annotated[str, choice(["A", "B", "C"])] = "B"
    source: Name | None = None


SECTIONS: dict[str, type[Section]] = {
    "software": SoftwareSection,
    "model": ModelSection,
    "cluster": ClusterSection,
    "parallelism": ParallelismSection,
    "training": TrainingSection,
    "offload": OffloadSection,
    "expect": ExpectSection,
    "measured": MeasuredSection,
}
"""The maps at the top of a scenario."""

TOP: dict[str, Any] = {"name": Name, "extends": Name, "as_of": Date}
"""What stands beside the maps, and ``what_if``, a list."""


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
