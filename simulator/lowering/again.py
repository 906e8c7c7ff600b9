"""What a checkpoint runs again in backward, and how long that lives.

Non-reentrant (torch/utils/checkpoint.py): the first node that unpacks a kept tensor runs the call
again, which stops early before the last op that packs anything; cached results that were never
popped and the arguments stay until the call's last node has unpacked. Re-entrant
(``CheckpointFunction.backward``): the call runs again to its end before any node, with a graph of
its own; its output, its arguments and the gradient that came in live until that graph has run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.lowering.calls import Call
from simulator.lowering.issue import Code, Inner, copy_over, issue, release, tensor_of
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Graph
from simulator.program.instructions import Category


def nothing() -> None:
    """Write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a framework writes around a call that runs again, and inside it.

    ``before`` and ``after`` the forward of a re-entrant call, ``end`` after its graph's backward;
    ``inner`` as in forward. ``holds_input``: somebody holds the call's argument and its gradient
    longer.
    """

    before: Code = nothing
    after: Code = nothing
    end: Code = nothing
    inner: Inner = field(default_factory=dict)
    holds_input: bool = False


def run_again(
    w: BlockWriter, graph: Graph, call: Call, held: dict[int, int], around: Around
) -> None:
    """Run the call up to its last op that keeps anything, popping what was cached from ``held``.

    The early stop unwinds every Python frame; a re-entrant call returns as forward did.
    """
    call.recomputed = True
    region, ops = call.region, graph.ops
    popped = {value for index in region.cached for value in ops[index].outputs}
    slots = call.slots = {v: held.pop(v) for v in sorted(popped) if v in held}
    kept = frozenset(call.keepers) | ({graph.output} if region.reentrant else set())
    for number in region.fetched:
        slots[number] = _fetch(w, graph, number)
    if region.reentrant:
        around.before()
    for index in range(region.first, region.stop):
        if index in region.cached:
            for code in around.inner.get(index, ()):
                code()
            release(w, ops[index], slots, kept)
        else:
            issue(w, graph, slots, index, kept, Category.RECOMPUTED, around.inner)
    if region.reentrant:
        around.after()
    never_popped = {
        value for index in region.cached if index >= region.stop for value in ops[index].outputs
    }
    dropped = [value for value in slots if value not in kept | never_popped]
    w.free_all(slots.pop(value) for value in dropped)


def _fetch(w: BlockWriter, graph: Graph, number: int) -> int:
    """A fresh copy of what waited on the host."""
    value = graph.values[number]
    slot = w.alloc(tensor_of(value, Category.RECOMPUTED))
    copy_over(w, value, "host_to_device")
    return slot
