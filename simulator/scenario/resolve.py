"""From valid sections to a scenario: presets, the size of the world, checks between sections."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from simulator.model.config import ModelConfig
from simulator.plan.plan import Fsdp, Parallelism, Plan, Training
from simulator.plan.precision import RECIPES
from simulator.scenario.bounds import Expect, Measured
from simulator.scenario.catalogue import Catalogue
from simulator.scenario.mistakes import Mistakes
from simulator.scenario.node import Map, origin_of
from simulator.scenario.scenario import ClusterSpec
from simulator.scenario.schema import (
    ClusterSection,
    ExpectSection,
    MeasuredSection,
    ModelSection,
    ParallelismSection,
    TrainingSection,
)
from simulator.scenario.validate import Sections

_LARGEST_WORLD = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a scenario that depend on one another."""

    model: ModelConfig
    cluster: ClusterSpec
    plan: Plan


def resolve(
    sections: Sections,
    tree: Map,
    directory: Path | None,
    catalogue: Catalogue,
    mistakes: Mistakes,
) -> Parts | None:
    """The parts of a scenario; None where a section is missing. What disagrees joins ``mistakes``.

    Checks that need no missing section are made all the same, so that nothing is told late.
    """
    model = _model(sections.model, catalogue, tree, mistakes) if sections.model else None
    cluster = _cluster(sections.cluster) if sections.cluster else None
    there = catalogue.gpus_per_node(cluster.topology, directory) if cluster else 0
    world = _world_size(cluster, there, tree, mistakes) if cluster else None
    mesh = _mesh(sections.parallelism, world, tree, mistakes) if sections.parallelism else None
    training = _training(sections.training) if sections.training else None
    if model is None or cluster is None or mesh is None or training is None:
        return None
    return Parts(model=model, cluster=cluster, plan=Plan(parallelism=mesh, training=training))


def _model(
    section: ModelSection, catalogue: Catalogue, tree: Map, mistakes: Mistakes
) -> ModelConfig:
    """The preset with the overrides of ``model:``; heads that do not divide join ``mistakes``.

    A preset whose ``head_dim`` is hidden / heads keeps that rule when either is overridden.
    """
    preset = catalogue.model(section.preset)
    given = section.model_dump(exclude={"preset"}, exclude_none=True)
    shape = dataclasses.replace(preset, **given)
    if shape.heads % shape.kv_heads:
        where = _first_given(tree, "model", ("kv_heads", "heads"))
        text = f"heads = {shape.heads} is not a multiple of kv_heads = {shape.kv_heads}"
        mistakes.at(tree, where, text)
    if "head_dim" not in given and preset.head_dim * preset.heads == preset.hidden:
        shape = dataclasses.replace(shape, head_dim=shape.hidden // shape.heads)
        if shape.hidden % shape.heads:
            where = _first_given(tree, "model", ("heads", "hidden"))
            text = f"hidden = {shape.hidden} is no multiple of heads = {shape.heads}; set head_dim"
            mistakes.at(tree, where, text)
            return shape
    if shape.head_dim % 2:
        where = _first_given(tree, "model", ("head_dim", "heads", "hidden"))
        text = f"head_dim = {shape.head_dim} is odd; rotary positions need an even one"
        mistakes.at(tree, where, text)
    return shape


def _first_given(tree: Map, section: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The first of ``keys`` that the user wrote: the place to point at."""
    paths = [(section, key) for key in keys]
    return next((p for p in paths if origin_of(tree, p) != origin_of(tree, (section,))), paths[0])


def _cluster(section: ClusterSection) -> ClusterSpec:
    """What is booked."""
    return ClusterSpec(
        topology=section.topology,
        nodes=section.nodes,
        gpus_per_node=section.gpus_per_node,
        gpu=section.gpu,
        reserved_bytes=section.reserved,
    )


def _world_size(spec: ClusterSpec, there: int, tree: Map, mistakes: Mistakes) -> int | None:
    """GPUs of the job, where a node has ``there``; None, with a mistake, where it asks for more."""
    used = spec.gpus_per_node or there
    if used > there:
        text = f"expected at most {there}, what a node of {spec.topology} has, found {used}"
        mistakes.at(tree, ("cluster", "gpus_per_node"), text)
        return None
    if spec.nodes * used > _LARGEST_WORLD:
        text = f"{spec.nodes:,} nodes of {used} GPUs pass the limit of {_LARGEST_WORLD:,} GPUs"
        mistakes.at(tree, ("cluster", "nodes"), text)
        return None
    return spec.nodes * used


def _mesh(
    section: ParallelismSection, world: int | None, tree: Map, mistakes: Mistakes
) -> Parallelism:
    """The mesh: ``dp_shard`` left out fills the world; a product that misses it is a mistake."""
    shard = section.dp_shard or world or 1
    if world is not None and shard != world:
        text = f"found {shard}, but the cluster has {world} GPUs; leave it out to fill them"
        mistakes.at(tree, ("parallelism", "dp_shard"), text)
    fsdp = Fsdp(**section.fsdp.model_dump())
    return Parallelism(framework=section.framework, dp_shard=shard, fsdp=fsdp)


def _training(section: TrainingSection) -> Training:
    """One training step, with its recipe of dtypes."""
    return Training(
        seq_len=section.seq_len,
        micro_batch=section.micro_batch,
        precision=RECIPES[section.precision],
        optimizer=section.optimizer.name,
        optimizer_implementation=section.optimizer.implementation,
        clip_grad_norm=section.clip_grad_norm,
        activation_checkpointing=section.activation_checkpointing.mode,
        attention=section.attention,
        loss=section.loss,
    )


def resolve_expect(section: ExpectSection | None) -> Expect:
    """The comparisons of ``expect:``; none where it is left out."""
    return Expect(**dict(section)) if section else Expect()


def resolve_measured(section: MeasuredSection | None) -> Measured | None:
    """The figures of ``measured:``; None where it is left out."""
    return Measured(**dict(section)) if section else None
