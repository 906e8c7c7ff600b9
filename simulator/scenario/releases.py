"""What the chosen release of torch cannot do, and what it does that is not simulated."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.lowering.lower import decoder_of
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder
from simulator.plan.plan import Plan
from simulator.plan.versions import (
    FSDP2_CAN,
    NEWEST_TORCH,
    OLDEST_DATE,
    OLDEST_TORCH,
    UNMODELLED,
    Software,
)
from simulator.scenario.frameworks import USUAL


def check_release(plan: Plan, software: Software, tree: Map, mistakes: Mistakes) -> None:
    """What is asked of FSDP2 must be there already."""
    fsdp, training = plan.parallelism.fsdp, plan.training
    if plan.parallelism.framework != USUAL:
        return
    grouped = fsdp.wrap == "torchtitan" or (
        isinstance(fsdp.wrap, tuple) and any("," in pattern for pattern in fsdp.wrap)
    )
    mixed = training.trained_precision.parameters is not training.precision.parameters
    for ability, asked, where in (
        ("several modules in one unit", grouped, ("parallelism", "fsdp", "wrap")),
        (
            "set_modules_to_forward_prefetch",
            fsdp.forward_prefetch > 0,
            ("parallelism", "fsdp", "forward_prefetch"),
        ),
        ("frozen parameters of another dtype", mixed, ("training", "fine_tuning")),
    ):
        rule = FSDP2_CAN[ability]
        if asked and rule.is_before(software):
            mistakes.at(tree, where, f"asks for {ability}, which came with {rule.change}")


def release_warnings(model: ModelConfig, plan: Plan, software: Software) -> Iterator[str]:
    """Where the release that picks FSDP2's rules does what the simulation does not follow."""
    if plan.parallelism.framework != USUAL:
        return
    if software.torch is not None and software.torch > NEWEST_TORCH:
        newest = ".".join(map(str, NEWEST_TORCH))
        yield f"software.torch: FSDP2's rules are those of torch {newest}, the newest that was read"
    if software.torch is None and software.as_of is not None and software.as_of < OLDEST_DATE:
        oldest = ".".join(map(str, OLDEST_TORCH))
        yield (
            f"as_of: FSDP2 came with torch {oldest} on {OLDEST_DATE} and was in nightlies alone "
            f"before it; its rules are those of {oldest}"
        )
    if plan.parallelism.fsdp.rules.records_streams and plan.parallelism.world_size > 1:
        yield (
            "software: before torch 2.8 NCCL's process group marks buffers for its own stream: "
            "active and reserved may be higher than what is allocated"
        )
    if _has_frozen_units(decoder_of(model, plan)):
        for what, rule in UNMODELLED.items():
            if rule.is_before(software):
                release = ".".join(map(str, rule.torch))
                yield f"software: before torch {release} {what}, which is not simulated"


def _has_frozen_units(decoder: Decoder) -> bool:
    return any(graph.weights and not graph.trained for graph in decoder.graphs)
