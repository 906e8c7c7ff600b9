"""Which values wait for backward: a minimum cut, as ``min_cut_rematerialization_partition``.

Each value costs its bytes, twice that if no library call reads or writes it. Never computed again:
library calls, random numbers, reductions, and what a library call of backward reads. Inside a
checkpoint everything is computed again, but what its policy keeps. Source:
torch/_functorch/partitioners.py, ``solve_min_cut``; of its heuristics the distance from backward
is counted in ops of the graph, which are coarser than torch's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from math import inf

from simulator.dtypes import DType
from simulator.lowering.compiled.fusion import Fusion, is_call
from simulator.lowering.recompute import Recompute, Region
from simulator.model.graph import Graph, Op

RANDOM = frozenset({"dropout"})
REDUCED = 4
"""A result so many times smaller than what it is computed from is kept."""
NEARER = 1.1
"""A value costs so much more for each op between it and backward."""

Vertex = tuple[str, int]
SOURCE, SINK = ("source", 0), ("sink", 0)


def plan_compiled(graph: Graph, regions: tuple[Region, ...]) -> Recompute:
    """What forward of the compiled graph keeps; ``regions``: its checkpointed calls."""
    cached = {v for region in regions for index in region.cached for v in graph.ops[index].outputs}
    again = {value for region in regions for value in region.inside} - cached
    kept = _Partition(graph, frozenset(again)).kept()
    borrowed = frozenset(v for op in graph.ops for v in op.borrows)
    held = {value for region in regions for value in region.held if value in graph.borrows}
    return Recompute(kept=kept - set(graph.borrows), borrowed=borrowed | held)


class _Partition:
    """The flow network: an edge through each value, and edges along the data."""

    def __init__(self, graph: Graph, again: frozenset[int]) -> None:
        self.graph, self.fusion = graph, Fusion(graph)
        self.needed = {value for op in graph.ops for value in op.saves}
        self.again = self._needed_again(again)
        self.called = {
            graph.root(v) for op in filter(is_call, graph.ops) for v in (*op.inputs, *op.outputs)
        }
        self.edges: dict[Vertex, dict[Vertex, float]] = {}

    def kept(self) -> frozenset[int]:
        """The values on the cut."""
        self._build()
        after = _before_sink_at_maximum(self.edges)
        return frozenset(
            value
            for value in self._values()
            if ("in", value) not in after and (("out", value) in after or value in self.seen_twice)
        )

    def _needed_again(self, again: frozenset[int]) -> set[int]:
        """Those of ``again`` that backward computes: what it reads, and what that is made from."""
        found: set[int] = set()
        waiting = [value for value in self.needed if value in again]
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting.extend(v for v in self._read_by_maker(value) if v in again)
        return found

    def _values(self) -> Iterator[int]:
        if self.graph.input is not None:
            yield self.graph.input
        yield from self.fusion.maker

    def _build(self) -> None:
        for value in self._values():
            self._edge(("in", value), ("out", value), self._cost(value))
            if value in self.again:
                self._edge(("in", value), SINK, inf)
            elif self._is_never_again(value):
                self._edge(SOURCE, ("in", value), inf)
            if value in self.seen_twice:
                self._edge(("out", value), SINK, self._cost(value) // 2)
            elif value in self.needed:
                self._edge(("out", value), SINK, inf)
            for source in self._read_by_maker(value):
                self._edge(("out", source), ("in", value), inf)

    def _edge(self, start: Vertex, end: Vertex, capacity: float) -> None:
        self.edges.setdefault(start, {})[end] = capacity
        self.edges.setdefault(end, {}).setdefault(start, 0)

    def _maker(self, value: int) -> Op | None:
        index = self.fusion.maker.get(value)
        return None if index is None else self.graph.ops[index]

    def _read_by_maker(self, value: int) -> Iterable[int]:
        """A dropped-out result is made from its mask, which alone is random."""
        op = self._maker(value)
        if op is None or self._is_mask(op, value):
            return ()
        masks = [v for v in op.outputs if self._is_mask(op, v)]
        read = self.fusion.roots((*op.inputs, *masks))
        return [v for v in read if v not in self.graph.borrows]

    def _is_mask(self, op: Op, value: int) -> bool:
        return op.kind in RANDOM and self.graph.values[value].dtype is DType.BOOL

    def _is_never_again(self, value: int) -> bool:
        op = self._maker(value)
        if op is None or is_call(op) or self._is_mask(op, value):
            return True
        if value not in self.fusion.computed:
            return False
        if any(value in call.saves for call in filter(is_call, self.graph.ops)):
            return True
        read = sum(self.graph.values[v].bytes for v in self.fusion.roots(op.inputs))
        return self.graph.values[value].bytes * REDUCED < read

    @cached_property
    def seen_twice(self) -> frozenset[int]:
        """What attention returns and keeps: its own backward reads one view of it, others another.

        To keep the storage costs twice, and that one view alone once.
        """
        by_others = {v for op in self.graph.ops for v in op.saves if v not in op.outputs}
        calls = filter(is_call, self.graph.ops)
        return frozenset(
            v
            for op in calls
            for v in op.outputs
            if v in op.saves and v not in by_others
            if any(v in other.inputs for other in self.graph.ops)
        )

    def _cost(self, value: int) -> int:
        size = self.graph.values[value].bytes
        once = value in self.called or value == self.graph.input
        once = once and value not in self.seen_twice
        return int(size * (1 if once else 2) * NEARER ** max(1, self._distances[value]))

    @cached_property
    def _distances(self) -> dict[int, int]:
        """Ops between each value and backward."""
        far = len(self.graph.ops)
        found = dict.fromkeys(self._values(), far) | dict.fromkeys(self.needed, 0)
        for op in reversed(self.graph.ops):
            after = min((found[v] for v in op.outputs if v in found), default=far)
            for value in self.fusion.roots(op.inputs):
                found[value] = min(found.get(value, far), after + 1)
        return found


def _before_sink_at_maximum(edges: dict[Vertex, dict[Vertex, float]]) -> set[Vertex]:
    """Fill the network along shortest paths (Edmonds and Karp); what SINK is still reached from.

    Of equal cuts the one next to SINK is taken, as networkx does.
    """
    while True:
        before = _search(edges)
        if SINK not in before:
            return _reaching(edges)
        path = [SINK]
        while path[-1] != SOURCE:
            path.append(before[path[-1]])
        steps = [(start, end) for end, start in pairwise(path)]
        amount = min(edges[start][end] for start, end in steps)
        for start, end in steps:
            edges[start][end] -= amount
            edges[end][start] += amount


def _reaching(edges: dict[Vertex, dict[Vertex, float]]) -> set[Vertex]:
    """What has a way to SINK left."""
    found = {SINK}
    waiting = [SINK]
    while waiting:
        end = waiting.pop()
        for start in edges.get(end, ()):
            if start not in found and edges[start].get(end, 0) > 0:
                found.add(start)
                waiting.append(start)
    return found


def _search(edges: dict[Vertex, dict[Vertex, float]]) -> dict[Vertex, Vertex]:
    """Each vertex that SOURCE reaches, and whence."""
    before = {SOURCE: SOURCE}
    waiting = deque([SOURCE])
    while waiting:
        start = waiting.popleft()
        for end, left in edges.get(start, {}).items():
            if left > 0 and end not in before:
                before[end] = start
                waiting.append(end)
    return before
