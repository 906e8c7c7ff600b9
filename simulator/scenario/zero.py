"""From ``parallelism.zero:`` to DeepSpeed's knobs; ``auto`` as Hugging Face fills it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Plain
from simulator.dtypes import DType
from simulator.model.config import ModelConfig
from simulator.plan.plan import Precision
from simulator.plan.zero import Zero
from simulator.scenario.fields import AUTO
from simulator.scenario.schema import ZeroSection

PATH = ("parallelism", "zero")

AUTOMATIC: Mapping[str, Callable[[int], int]] = {
    "reduce_bucket_size": lambda hidden: hidden * hidden,
    "stage3_prefetch_bucket_size": lambda hidden: int(0.9 * hidden * hidden),
    "stage3_param_persistence_threshold": lambda hidden: 10 * hidden,
}
"""What ``auto`` means, by hidden size: transformers/integrations/deepspeed.py (5.24),
``trainer_config_finalize``."""

STAGES: Mapping[str, tuple[int, ...]] = {
    "overlap_comm": (1, 2, 3),
    "contiguous_gradients": (1, 2, 3),
    "reduce_scatter": (1, 2),
    "round_robin_gradients": (1, 2),
    "reduce_bucket_size": (1, 2, 3),
    "stage3_prefetch_bucket_size": (3,),
    "stage3_param_persistence_threshold": (3,),
    "stage3_max_live_parameters": (3,),
    "stage3_max_reuse_distance": (3,),
    "stage3_allgather_sequential": (3,),
    "sub_group_size": (3,),
}
"""The stages that read a key; the others read it not."""


def resolve_zero(
    section: ZeroSection, model: ModelConfig | None, tree: Map, mistakes: Mistakes
) -> Zero:
    """The knobs of a section; a size that no formula gives joins ``mistakes``."""
    found = {
        key: _elements(section, key, model, tree, mistakes)
        for key in (*AUTOMATIC, "stage3_max_live_parameters", "stage3_max_reuse_distance")
    }
    overlap = section.overlap_comm
    if section.built_on == "zero-init" and section.stage < 3:
        text = f"cuts parameters, which stage {section.stage} does not; supported: cpu, cuda"
        mistakes.at(tree, (*PATH, "built_on"), text)
    return Zero(
        stage=section.stage,
        overlap_comm=section.stage == 3 if overlap is None else overlap,
        contiguous_gradients=section.contiguous_gradients,
        reduce_scatter=section.reduce_scatter,
        round_robin_gradients=section.round_robin_gradients,
        reduce_bucket_size=found["reduce_bucket_size"],
        prefetch_bucket_size=found["stage3_prefetch_bucket_size"],
        param_persistence_threshold=found["stage3_param_persistence_threshold"],
        max_live_parameters=found["stage3_max_live_parameters"],
        max_reuse_distance=found["stage3_max_reuse_distance"],
        sub_group_size=section.sub_group_size,
        allgather_sequential=section.stage3_allgather_sequential,
        built_on=section.built_on or usual_building(section.stage, model)[0],
    )


def check_zero(
    section: ZeroSection, precision: Precision | None, tree: Map, mistakes: Mistakes
) -> None:
    """What the engine refuses or this version does not carry out."""
    stage = section.stage
    if stage not in SUPPORTED:
        text = f"not yet supported in this version: stage {stage}; supported: 0, 1, 2"
        mistakes.at(tree, (*PATH, "stage"), text)
    if stage in (1, 2) and section.overlap_comm and not section.contiguous_gradients:
        text = f"not yet supported with overlap_comm at stage {stage}; supported: true"
        mistakes.at(tree, (*PATH, "contiguous_gradients"), text)
    if precision is None or precision.gradients is precision.parameters:
        return
    if stage == 0 or (stage == 1 and precision.parameters is not DType.BF16):
        text = f"not supported at stage {stage}; supported: as parameters, or stage: 2"
        mistakes.at(tree, ("training", "precision", "gradients"), text)


SUPPORTED = (0, 1, 2)
"""Stages that are lowered."""


def usual_building(stage: int, model: ModelConfig | None) -> tuple[str, str]:
    """Where modules are built where nobody says, and the words for where that comes from."""
    if stage == 3:
        return "zero-init", "stage 3 as it is used"
    if model is not None and model.style == "torchtitan":
        return "cuda", "as torchtitan builds its modules"
    return "cpu", "as from_pretrained builds modules"


def _elements(
    section: ZeroSection, key: str, model: ModelConfig | None, tree: Map, mistakes: Mistakes
) -> int:
    given = getattr(section, key)
    if given != AUTO:
        return int(given)
    if key not in AUTOMATIC:
        known = ", ".join(AUTOMATIC)
        mistakes.at(tree, (*PATH, key), f"auto is known of {known} alone; write a number")
        return 0
    return AUTOMATIC[key](model.hidden) if model is not None else 0


def dead_of(zero: Zero) -> Iterator[tuple[str, Plain, str]]:
    """Keys that a stage does not read, each with the value that asks for nothing."""
    for key, stages in STAGES.items():
        if zero.stage not in stages:
            default = ZeroSection.model_fields[key].default
            yield f"parallelism.zero.{key}", default, f" at stage {zero.stage}"
    yield (
        "parallelism.zero.allgather_bucket_size",
        ZeroSection.model_fields["allgather_bucket_size"].default,
        ": new weights are gathered in one call (all_gather_into_tensor)",
    )
