"""Activation checkpointing of one graph: what forward keeps, what backward runs again."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.model.graph import Graph

SELECTIVE_ALWAYS = frozenset({"flash_attention", "efficient_attention"})
"""Op kinds whose results torchtitan's selective-op policy always keeps (its ``_op_sac_save_list``:
attention and communication); of matrix products (``mm``) it keeps every other one, first included.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """The policy ``mode`` applied to one graph.

    ``kept``: values that backward finds. ``cached``: ops whose results forward keeps and
    recompute pops. ``stop``: recompute runs ops before this one. ``until_loss``: values that
    outlive the module's forward, but go when the loss is there.
    """

    active: bool
    kept: frozenset[int]
    cached: frozenset[int]
    stop: int
    until_loss: frozenset[int] = frozenset()


def plan_recompute(graph: Graph, mode: str, *, early_stop: bool = True) -> Recompute:
    """``mode``: ``none``, ``full`` or ``selective-op``. ``early_stop`` off: all ops run again."""
    if mode == "none":
        return Recompute(active=False, kept=graph.saved_values(), cached=frozenset(), stop=0)
    cached = selective_ops(graph) if mode == "selective-op" else frozenset()
    kept = {value for index in cached for value in graph.ops[index].outputs}
    if graph.input is not None:
        kept.add(graph.input)
    stop = stops_at(graph) if early_stop else len(graph.ops)
    return Recompute(
        active=True,
        kept=frozenset(kept),
        cached=cached,
        stop=stop,
        until_loss=frozenset(graph.until_loss) - kept,
    )


def selective_ops(graph: Graph) -> frozenset[int]:
    """Ops that torchtitan's selective-op policy caches: attention, and mm number 1, 3, 5, ..."""
    products = [index for index, op in enumerate(graph.ops) if op.kind == "mm"]
    always = [index for index, op in enumerate(graph.ops) if op.kind in SELECTIVE_ALWAYS]
    return frozenset(products[::2] + always)


def stops_at(graph: Graph) -> int:
    """How many ops a recompute runs before ``_StopRecomputationError``.

    It is raised when as many tensors were packed again as forward had packed. An op packs its
    inputs before its kernel runs and its outputs after, so the last op that packs runs only if it
    keeps an output (torch/utils/checkpoint.py, ``early_stop``).
    """
    last = max(index for index, op in enumerate(graph.ops) if op.saves or op.borrows)
    op = graph.ops[last]
    return last + 1 if set(op.saves) & set(op.outputs) else last
