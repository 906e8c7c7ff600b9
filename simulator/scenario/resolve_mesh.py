"""From ``cluster:`` and ``parallelism:`` to the size of the world and its mesh."""

from __future__ import annotations

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.model.config import ModelConfig
from simulator.plan.plan import Fsdp, Parallelism
from simulator.plan.versions import Software, default_of, fsdp2_rules
from simulator.scenario.scenario import ClusterSpec
from simulator.scenario.schema import FsdpSection, ParallelismSection

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
    software: Software,
    tree: Map,
    mistakes: Mistakes,
) -> Parallelism:
    """The mesh: the dp axis left out fills the world; a product that misses it is a mistake.

    ``wrap``: which modules get a unit of their own where the scenario doesn't say.
    """
    replicate, shard = _dp_axes(section, world, tree, mistakes)
    _check_slices(section.fsdp, shard, tree, mistakes)
    return Parallelism(
        framework=section.framework,
        dp_replicate=replicate,
        dp_shard=shard,
        fsdp=_fsdp(section.fsdp, wrap, software),
    )


def usual_wrap(software: Software, model: ModelConfig | None) -> tuple[str, str]:
    """The wrapping where none is given, and the words for where it comes from."""
    if model is not None and model.tied:
        return "block", "head and embedding share a weight"
    wrap, word = default_of("parallelism.fsdp.wrap", software)
    return str(wrap), word


def _dp_axes(
    section: ParallelismSection, world: int | None, tree: Map, mistakes: Mistakes
) -> tuple[int, int]:
    """(dp_replicate, dp_shard). With neither given there is one replica."""
    replicate, shard = section.dp_replicate, section.dp_shard
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


def _fsdp(section: FsdpSection, wrap: str, software: Software) -> Fsdp:
    last, _ = default_of("parallelism.fsdp.reshard_last_block", software)
    given = section.reshard_last_block
    return Fsdp(
        wrap=wrap if section.wrap is None else section.wrap,
        reshard_after_forward=section.reshard_after_forward,
        reshard_last_block=bool(last) if given is None else given,
        reshard_after_backward=section.reshard_after_backward,
        sync_every_micro_batch=section.sync_every_micro_batch,
        forward_prefetch=section.forward_prefetch,
        rules=fsdp2_rules(software),
    )
