"""From ``cluster:`` and ``parallelism:`` to the size of the world and its mesh."""

from __future__ import annotations

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.model.config import ModelConfig
from simulator.plan.plan import Ddp, Fsdp, Parallelism
from simulator.plan.versions import Software, default_of, fsdp2_rules
from simulator.scenario.fine_tuning import PEFT
from simulator.scenario.frameworks import Rules, rules_of
from simulator.scenario.scenario import ClusterSpec
from simulator.scenario.schema import FsdpSection, ParallelismSection
from simulator.scenario.zero import resolve_zero

LARGEST_WORLD = 10_000_000


def world_size(spec: ClusterSpec, there: int, tree: Map, mistakes: Mistakes) -> int | None:
    """GPUs of the job, where a node has ``there``; None, with a mistake, where it asks for more."""
    used = spec.gpus_per_node or there
    if used > there:
        text = f"expected at most {there}, what a node of {spec.topology} has, found {used}"
        mistakes.at(tree, ("cluster", "gpus_per_node"), text)
        return None
    if spec.nodes * used > LARGEST_WORLD:
        text = f"{spec.nodes:,} nodes of {used} GPUs pass the limit of {LARGEST_WORLD:,} GPUs"
        mistakes.at(tree, ("cluster", "nodes"), text)
        return None
    return spec.nodes * used


def resolve_mesh(
    section: ParallelismSection,
    world: int | None,
    wrap: str,
    model: ModelConfig | None,
    software: Software,
    tree: Map,
    mistakes: Mistakes,
) -> Parallelism:
    """The mesh: the dp axis left out fills the world; a product that misses it is a mistake.

    ``wrap``: which modules get a unit of their own where the scenario doesn't say. ``model``:
    whose size DeepSpeed's ``auto`` stands for.
    """
    rules = rules_of(section.framework)
    _check_axes(section, rules, world, tree, mistakes)
    replicate, shard = _dp_axes(section, rules, world, tree, mistakes)
    _check_slices(section.fsdp, shard, tree, mistakes)
    if section.framework == "fsdp1":
        _check_fsdp1(section.fsdp, wrap, shard, tree, mistakes)
    elif section.fsdp.wrap == PEFT:
        text = f"not yet supported under {section.framework}; supported: block, framework: fsdp1"
        mistakes.at(tree, ("parallelism", "fsdp", "wrap"), text)
    return Parallelism(
        framework=section.framework,
        dp_replicate=replicate,
        dp_shard=shard,
        fsdp=_fsdp(section.fsdp, wrap, software),
        ddp=Ddp(
            bucket_cap=section.ddp.bucket_cap,
            gradient_as_bucket_view=section.ddp.gradient_as_bucket_view,
        ),
        zero=resolve_zero(section.zero, model, tree, mistakes),
    )


def usual_wrap(
    software: Software, framework: str, model: ModelConfig | None, method: str
) -> tuple[str, str]:
    """The wrapping where none is given, and the words for where it comes from.

    ``method`` of fine-tuning: transformers' Trainer wraps adapters by peft's policy under FSDP1.
    """
    fixed = rules_of(framework).wrap
    if framework == "fsdp1" and method == "lora":
        return PEFT, "transformers' Trainer wraps adapters so"
    if fixed is not None:
        return fixed, f"{framework} {'wraps no modules' if fixed == 'none' else 'as it is used'}"
    if model is not None and model.tied:
        return "block", "head and embedding share a weight"
    wrap, word = default_of("parallelism.fsdp.wrap", software)
    return str(wrap), word


def usual_original(wrap: str | tuple[str, ...]) -> bool:
    """``use_orig_params`` where it is not given: accelerate leaves it off, and who wraps by hand
    has compiled or per-parameter optimizers in mind."""
    return wrap != PEFT


def _check_axes(
    section: ParallelismSection, rules: Rules, world: int | None, tree: Map, mistakes: Mistakes
) -> None:
    """A framework splits the job over axes of its own; without any there is one GPU."""
    name = section.framework
    if not rules.axes and world is not None and world > 1:
        text = f"{name} trains on one GPU, and the cluster has {world}; set cluster.gpus_per_node"
        mistakes.at(tree, ("parallelism", "framework"), f"{text}: 1, or use another framework")
    for axis in ("dp_replicate", "dp_shard"):
        if axis not in rules.axes and (getattr(section, axis) or 1) > 1:
            can = f"use {rules.axes[0]}" if rules.axes else "there is one GPU"
            where = ("parallelism", axis)
            mistakes.at(tree, where, f"{name} splits nothing along {axis}; {can}")


def _dp_axes(
    section: ParallelismSection, rules: Rules, world: int | None, tree: Map, mistakes: Mistakes
) -> tuple[int, int]:
    """(dp_replicate, dp_shard). With neither given the framework's first axis fills the world."""
    replicate, shard = section.dp_replicate, section.dp_shard
    if not rules.axes:
        return 1, 1
    if rules.axes == ("dp_replicate",):
        shard = 1
    if world is None:
        return replicate or 1, shard or 1
    if shard is None:
        known = replicate or 1
        return known, _rest(known, world, "dp_replicate", tree, mistakes)
    if replicate is None:
        return _rest(shard, world, "dp_shard", tree, mistakes), shard
    if replicate * shard != world:
        text = f"found {shard}, and dp_replicate × dp_shard = {replicate} × {shard} are "
        hint = "leave one of the two out to fill them"
        where = ("parallelism", "dp_shard")
        mistakes.at(tree, where, f"{text}{replicate * shard} of {world} GPUs; {hint}")
    return replicate, shard


def _rest(known: int, world: int, axis: str, tree: Map, mistakes: Mistakes) -> int:
    """The other axis: what is left of the world."""
    if world % known:
        text = f"found {known}, but the cluster has {world} GPUs, which are no multiple of it"
        mistakes.at(tree, ("parallelism", axis), f"{text}; leave it out to fill them")
        return 1
    return world // known


def _check_slices(section: FsdpSection, shard: int, tree: Map, mistakes: Mistakes) -> None:
    """``reshard_after_forward: N`` cuts dp_shard into groups of N ranks."""
    after = section.reshard_after_forward
    if isinstance(after, bool) or shard % after == 0:
        return
    allowed = [str(n) for n in range(1, min(shard, 4096) + 1) if shard % n == 0]
    text = f"found {after}, which does not divide dp_shard = {shard}"
    where = ("parallelism", "fsdp", "reshard_after_forward")
    mistakes.at(tree, where, f"{text}; allowed: {', '.join(['true', 'false', *allowed])}")


def _check_fsdp1(
    section: FsdpSection, wrap: str, shard: int, tree: Map, mistakes: Mistakes
) -> None:
    """What FSDP1 has no choice of."""
    where = ("parallelism", "fsdp")
    if not isinstance(section.reshard_after_forward, bool):
        text = "fsdp1 reshards all or nothing; allowed: true, false"
        mistakes.at(tree, (*where, "reshard_after_forward"), text)
    if section.forward_prefetch > 1:
        text = f"found {section.forward_prefetch}, but fsdp1 gathers one unit ahead; allowed: 0, 1"
        mistakes.at(tree, (*where, "forward_prefetch"), text)
    chosen = wrap if section.wrap is None else section.wrap
    if chosen == "torchtitan":
        text = "fsdp1 wraps one module a unit, not norm and head in one"
        mistakes.at(tree, (*where, "wrap"), f"{text}; supported: block, peft, none, patterns")
    if chosen == "none" and section.use_orig_params is not False:
        text = "not yet supported under fsdp1 with use_orig_params; supported: block"
        mistakes.at(tree, (*where, "wrap"), f"{text}, or use_orig_params: false")
    if shard == 1:
        text = "fsdp1 shards nothing over one rank; expected 2 or more, or framework: single"
        mistakes.at(tree, ("parallelism", "dp_shard"), text)


def _fsdp(section: FsdpSection, wrap: str, software: Software) -> Fsdp:
    last, _ = default_of("parallelism.fsdp.reshard_last_block", software)
    given = section.reshard_last_block
    return Fsdp(
        wrap=wrap if section.wrap is None or wrap == "none" else section.wrap,
        reshard_after_forward=section.reshard_after_forward,
        reshard_last_block=bool(last) if given is None else given,
        reshard_after_backward=section.reshard_after_backward,
        sync_every_micro_batch=section.sync_every_micro_batch,
        forward_prefetch=section.forward_prefetch,
        backward_prefetch=section.backward_prefetch,
        limit_all_gathers=section.limit_all_gathers,
        use_orig_params=usual_original(wrap if section.wrap is None else section.wrap)
        if section.use_orig_params is None
        else section.use_orig_params,
        rules=fsdp2_rules(software),
    )
