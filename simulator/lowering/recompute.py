"""Activation checkpointing of one graph: what forward keeps, what backward runs again.

A checkpoint (torch/utils/checkpoint.py) runs a function whose nodes keep nothing: its arguments
stay, and backward runs it again. The function is a whole block, or a part of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from simulator.lowering.policy import CORE_ATTENTION, TORCHTITAN, cached_ops
from simulator.model.graph import Graph, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One checkpointed call: the ops from ``first`` up to ``end``; recompute ends before ``stop``.

    ``inside``: the storages that it makes. ``held``: its arguments, in order. ``leaves``: what
    it makes for its own frame alone, which goes when it returns. ``cached``: ops whose results a
    selective policy keeps and recompute pops. ``fetched``: arguments that wait on the host; what
    recompute brings back counts as made inside. ``reentrant``: it runs again before any node.
    """

    first: int
    end: int
    stop: int
    inside: frozenset[int]
    held: tuple[int, ...]
    leaves: frozenset[int] = frozenset()
    cached: frozenset[int] = frozenset()
    fetched: tuple[int, ...] = ()
    reentrant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """The checkpoints of one graph.

    ``kept``: values that backward finds. ``borrowed``: likewise, of those that the graph has only
    borrowed. ``until_loss``: values that outlive the module's forward, but go when the loss is
    there.
    """

    regions: tuple[Region, ...] = ()
    kept: frozenset[int]
    borrowed: frozenset[int]
    until_loss: frozenset[int] = frozenset()


def plan_recompute(
    graph: Graph,
    mode: str,
    *,
    early_stop: bool = True,
    save: Sequence[str] | None = None,
    modules: Sequence[str] = CORE_ATTENTION,
    offload: bool = False,
    reentrant: bool = False,
) -> Recompute:
    """``mode``: ``none``, ``full``, ``selective-op`` or ``megatron-selective``.

    ``early_stop`` off: all ops run again. ``save``: operators whose results ``selective-op`` keeps
    (None: torchtitan's); ``modules``: the parts that ``megatron-selective`` checkpoints;
    ``offload``: a block's arguments wait on the host; ``reentrant``: ``use_reentrant=True``.
    """
    regions: tuple[Region, ...] = ()
    if not any(op.saves or op.borrows for op in graph.ops):
        mode = "none"  # without a node that keeps anything nobody holds the checkpoint
    if mode in ("full", "selective-op"):
        chosen = TORCHTITAN if save is None else save
        cached = cached_ops(graph, chosen) if mode == "selective-op" else frozenset()
        whole = _whole(graph, cached, early_stop and not reentrant, offload)
        regions = (replace(whole, reentrant=reentrant),)
    elif mode == "megatron-selective":
        regions = tuple(_parts(graph, modules, early_stop))
    return _recompute(graph, regions)


def _recompute(graph: Graph, regions: tuple[Region, ...]) -> Recompute:
    covered = {index for region in regions for index in range(region.first, region.end)}
    found = {value for region in regions for value in region.held}
    for index, op in enumerate(graph.ops):
        if index not in covered:
            found.update(op.saves, op.borrows, (given.saved for given in op.gives))
    for region in regions:
        found.update(value for index in region.cached for value in graph.ops[index].outputs)
    borrowed = frozenset(graph.borrows)
    kept = frozenset(found) - borrowed
    return Recompute(
        regions=regions,
        kept=kept,
        borrowed=frozenset(found) & borrowed,
        until_loss=frozenset(graph.until_loss) - kept,
    )


def _whole(graph: Graph, cached: frozenset[int], early_stop: bool, offload: bool) -> Region:
    """The block's arguments are its input and all that it is lent, read or not, or casts of it.

    What it is lent is passed by keyword: ``save_on_cpu`` does not see it, and it stays.
    """
    source = () if graph.input is None else (graph.input,)
    first, end = graph.casts, len(graph.ops)
    replaced = {value: op.outputs[0] for op in graph.ops[:first] for value in op.inputs}
    passed = tuple(replaced.get(value, value) for value in graph.borrows)
    fetched = (*source, *graph.tables) if offload else ()
    return Region(
        first=first,
        end=end,
        stop=_stops_at(graph, first, end) if early_stop else end,
        inside=_made(graph, first, end) | set(fetched),
        held=passed if offload else (*source, *passed),
        cached=cached,
        fetched=fetched,
    )


def _parts(graph: Graph, modules: Sequence[str], early_stop: bool) -> Iterable[Region]:
    """The asked parts that keep anything, in order; a part of an asked part is in it already."""
    asked = [part for part in graph.parts if part.name in modules]
    end = 0
    for part in sorted(asked, key=lambda part: (part.first, -part.end)):
        ops = graph.ops[part.first : part.end]
        if part.first >= end and any(op.saves or op.borrows for op in ops):
            end = part.end
            yield _part(graph, part, early_stop)


def _part(graph: Graph, part: Part, early_stop: bool) -> Region:
    inside = _made(graph, part.first, part.end)
    ops, later = graph.ops[part.first : part.end], graph.ops[part.end :]
    reads = [graph.root(v) for op in ops for v in (*op.inputs, *op.saves, *op.borrows)]
    parameters = {value for value in reads if graph.values[value].base == value}
    given = inside | parameters | set(graph.tables)
    returned = {graph.root(value) for op in later for value in op.inputs}
    return Region(
        first=part.first,
        end=part.end,
        stop=_stops_at(graph, part.first, part.end) if early_stop else part.end,
        inside=inside,
        held=tuple(v for v in dict.fromkeys((*reads, *part.unread)) if v not in given),
        leaves=inside - returned - {graph.root(graph.output)},
    )


def _made(graph: Graph, first: int, end: int) -> frozenset[int]:
    return frozenset(
        value
        for op in graph.ops[first:end]
        for value in op.outputs
        if graph.values[value].base is None
    )


def _stops_at(graph: Graph, first: int, end: int) -> int:
    """The op at which a recompute of ``first`` up to ``end`` meets ``_StopRecomputationError``.

    It is raised when as many tensors were packed again as forward had packed. An op packs its
    inputs before its kernel runs and its outputs after, so the last op that packs runs only if it
    keeps an output (torch/utils/checkpoint.py, ``early_stop``).
    """
    ops = graph.ops
    last = max(index for index in range(first, end) if ops[index].saves or ops[index].borrows)
    op = ops[last]
    return last + 1 if set(op.saves) & set(op.outputs) else last
