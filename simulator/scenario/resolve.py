"""From valid sections to a scenario: presets, the size of the world, checks between sections."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Plain
from simulator.errors import UserError
from simulator.model.config import ModelConfig
from simulator.plan.plan import Parallelism, Plan, Training
from simulator.plan.versions import OLDEST_TORCH, Software, default_of
from simulator.scenario.bounds import Expect, Measured
from simulator.scenario.catalogue import Catalogue
from simulator.scenario.frameworks import USUAL, rules_of
from simulator.scenario.limits import check_size
from simulator.scenario.releases import check_release
from simulator.scenario.resolve_mesh import resolve_mesh, usual_wrap, world_size
from simulator.scenario.resolve_model import Shaped, resolve_model
from simulator.scenario.resolve_training import (
    resolve_offload,
    resolve_training,
    usual_loss,
    with_attention,
)
from simulator.scenario.scenario import ClusterSpec
from simulator.scenario.schema import (
    ClusterSection,
    ExpectSection,
    MeasuredSection,
    SoftwareSection,
)
from simulator.scenario.validate import Sections
from simulator.scenario.zero import check_zero, usual_building
from simulator.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a scenario that depend on one another.

    ``derived``: values that were left out and that no default of the schema gives, by key.
    """

    model: ModelConfig
    cluster: ClusterSpec
    plan: Plan
    derived: dict[tuple[str, ...], tuple[Plain, str]]


def resolve(
    sections: Sections,
    software: Software,
    tree: Map,
    directory: Path | None,
    catalogue: Catalogue,
    mistakes: Mistakes,
) -> Parts | None:
    """The parts of a scenario; None where a section is missing. What disagrees joins ``mistakes``.

    Checks that need no missing section are made all the same, so that nothing is told late.
    """
    shaped = mesh = world = training = None
    if sections.model:
        style = rules_of(sections.parallelism.framework).style if sections.parallelism else None
        shaped = resolve_model(
            sections.model, style, software, directory, catalogue, tree, mistakes
        )
    cluster = _cluster(sections.cluster) if sections.cluster else None
    if cluster:
        there = catalogue.gpus_per_node(cluster.topology, directory)
        world = world_size(cluster, there, tree, mistakes)
        _check_reserved(cluster, directory, catalogue, tree, mistakes)
    model = shaped.config if shaped else None
    framework = sections.parallelism.framework if sections.parallelism else USUAL
    wrap, _ = usual_wrap(software, framework, model, _method(sections))
    if sections.parallelism:
        mesh = resolve_mesh(sections.parallelism, world, wrap, model, software, tree, mistakes)
    if sections.training:
        training = resolve_training(sections.training, model, mesh, software, tree, mistakes)
    if sections.parallelism and framework == "deepspeed":
        precision = training.precision if training else None
        check_zero(sections.parallelism.zero, precision, tree, mistakes)
    offload = resolve_offload(sections.offload, framework, tree, mistakes)
    if training and mesh and training.precision.loss_scaling:
        _check_scaling(mesh.framework, training, offload, tree, mistakes)
    if sections.measured and world is not None:
        _check_whose(sections.measured, world, tree, mistakes)
    if shaped and training:
        check_size(shaped.config, training, tree, mistakes)
    if not (shaped and cluster and mesh and training) or mistakes.found:
        return None
    plan = Plan(parallelism=mesh, training=training, offload_parameters=offload)
    config = with_attention(shaped.config, training.attention)
    _check_wrap(config, plan, tree, mistakes)
    check_release(plan, software, tree, mistakes)
    _check_loss(config, plan, tree, mistakes)
    derived = _derived(sections, software, shaped, mesh, training)
    return Parts(model=config, cluster=cluster, plan=plan, derived=derived)


def _method(sections: Sections) -> str:
    return sections.training.fine_tuning.method if sections.training else "full"


def resolve_software(
    section: SoftwareSection | None, as_of: str | None, tree: Map, mistakes: Mistakes
) -> Software:
    """The versions that pick rules."""
    torch = section.torch if section else None
    if torch is not None and torch < OLDEST_TORCH:
        text = f"fsdp2 came with torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}; found an older one"
        mistakes.at(tree, ("software", "torch"), text)
    return Software(as_of=as_of, torch=torch)


def _cluster(section: ClusterSection) -> ClusterSpec:
    """What is booked."""
    return ClusterSpec(
        topology=section.topology,
        nodes=section.nodes,
        gpus_per_node=section.gpus_per_node,
        gpu=section.gpu,
        reserved_bytes=section.reserved,
    )


def _check_reserved(
    cluster: ClusterSpec,
    directory: Path | None,
    catalogue: Catalogue,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    """What others take must leave something."""
    if not cluster.reserved_bytes:
        return
    usable = catalogue.usable_bytes(cluster.topology, cluster.gpu, directory)
    if cluster.reserved_bytes >= usable:
        found = format_bytes(cluster.reserved_bytes)
        text = f"found {found}, but each GPU has {format_bytes(usable)} in all"
        mistakes.at(tree, ("cluster", "reserved"), text)


def _check_scaling(
    framework: str, training: Training, offload: bool, tree: Map, mistakes: Mistakes
) -> None:
    """A loss scaler is simulated around torch's own optimizers on the GPU."""
    where = ("training", "precision", "loss_scaling")
    if training.optimizer not in SCALED:
        text = f"is not supported with {training.optimizer}; supported: {', '.join(SCALED)}"
        mistakes.at(tree, where, text)
    if framework != "fsdp2":
        mistakes.at(tree, where, f"is not supported under {framework}; supported: fsdp2")
    if offload:
        mistakes.at(tree, where, "is not supported with an optimizer on the host (offload)")


SCALED = ("adamw", "adam", "sgd")
"""Optimizers around which a loss scaler is simulated."""


def _check_whose(section: MeasuredSection, world: int, tree: Map, mistakes: Mistakes) -> None:
    """A rank by number must be there."""
    if isinstance(section.of, int) and section.of >= world:
        text = f"found rank {section.of}, but the job has ranks 0 to {world - 1}"
        mistakes.at(tree, ("measured", "of"), text)


def _check_wrap(model: ModelConfig, plan: Plan, tree: Map, mistakes: Mistakes) -> None:
    """Patterns name modules of this model; modules that share a weight share a unit."""
    from simulator.lowering.lower import decoder_of
    from simulator.lowering.units import WRAPS, wrapped_sorts

    wrap, where = plan.parallelism.fsdp.wrap, ("parallelism", "fsdp", "wrap")
    try:
        if isinstance(wrap, str):
            sorts = WRAPS[wrap]
        else:
            sorts = wrapped_sorts(wrap, decoder_of(model, plan))
    except UserError as error:
        mistakes.at(tree, where, str(error).removeprefix("fsdp.wrap: "))
        return
    if model.tied and sorts & {"embedding", "head"}:
        text = f"the head of {model.name} is its embedding, so both belong to the root"
        mistakes.at(tree, where, f"{text}; supported: block, none")


def _check_loss(model: ModelConfig, plan: Plan, tree: Map, mistakes: Mistakes) -> None:
    """The model, the precision and the wrapping can run the loss."""
    from simulator.lowering.lower import decoder_of
    from simulator.lowering.refusals import check_loss

    if plan.training.loss == "eager" or mistakes.found:
        return
    try:
        check_loss(decoder_of(model, plan), plan)
    except UserError as error:
        mistakes.at(tree, ("training", "loss"), str(error))


def _derived(
    sections: Sections,
    software: Software,
    shaped: Shaped,
    mesh: Parallelism,
    training: Training,
) -> dict[tuple[str, ...], tuple[Plain, str]]:
    """Values that were left out, with the words for where they come from."""
    wrap, last = ("parallelism", "fsdp", "wrap"), ("parallelism", "fsdp", "reshard_last_block")
    assert sections.parallelism
    assert sections.training
    one = sections.parallelism.dp_shard is None and sections.parallelism.dp_replicate is None
    whole = training.micro_batch * mesh.dp_replicate * mesh.dp_shard * training.grad_accum
    given = sections.training.global_batch is not None
    offload = sections.offload.parameters if sections.offload else "none"
    return {
        **shaped.derived,
        wrap: usual_wrap(software, mesh.framework, shaped.config, _method(sections)),
        ("parallelism", "fsdp", "use_orig_params"): (
            mesh.fsdp.use_orig_params,
            "as the wrapping is used",
        ),
        last: default_of("parallelism.fsdp.reshard_last_block", software),
        ("parallelism", "zero", "overlap_comm"): (mesh.zero.overlap_comm, "on at stage 3"),
        ("parallelism", "zero", "built_on"): usual_building(mesh.zero.stage, shaped.config),
        ("parallelism", "dp_replicate"): (mesh.dp_replicate, _FILLS if not one else "default"),
        ("parallelism", "dp_shard"): (mesh.dp_shard, _FILLS),
        ("training", "precision"): (
            rules_of(mesh.framework).precision,
            f"as {mesh.framework} is used",
        ),
        ("training", "grad_accum"): (training.grad_accum, "global_batch" if given else "default"),
        ("training", "global_batch"): (whole, "micro_batch × ranks × grad_accum"),
        ("training", "optimizer", "implementation"): (
            training.optimizer_implementation,
            "the optimizer's own default",
        ),
        ("training", "attention"): (training.attention, "as the model's modules have it"),
        ("training", "loss"): usual_loss(software, shaped.config.style),
        ("offload", "gradients"): (offload, "as parameters"),
        ("offload", "optimizer"): (offload, "as parameters"),
    }


_FILLS = "fills the world"


def resolve_expect(section: ExpectSection | None) -> Expect:
    """The comparisons of ``expect:``; none where it is left out."""
    return Expect(**dict(section)) if section else Expect()


def resolve_measured(section: MeasuredSection | None) -> Measured | None:
    """The figures of ``measured:``; None where it is left out."""
    return Measured(**dict(section)) if section else None
