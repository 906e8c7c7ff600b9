"""Hooks of modules that are wrapped inside a unit, such as peft's adapters: their own each.

The order of events is that of units: gathered before the module runs and dropped behind it; in
backward each gathers the one that ran before it. A checkpoint around them runs their hooks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.lowering.framework import hooks
from simulator.lowering.framework.fsdp1.draft import Draft
from simulator.lowering.framework.fsdp1.flat import FlatParameter
from simulator.lowering.framework.fsdp1.moves import Moves, wait_for_unshard
from simulator.lowering.framework.hooks import Write
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.units import Kind


@dataclass(slots=True)
class InBackward:
    """``again``: around the modules where a checkpoint runs them again; ``before`` the backward of
    each, by op; ``after``: behind its gradient, by name of the weight."""

    again: Mapping[int, tuple[Write, Write]] = field(default_factory=dict)
    before: dict[int, Write] = field(default_factory=dict)
    after: dict[str, Write] = field(default_factory=dict)


class Nested:
    """Adds them to the drafts of their units."""

    def __init__(self, moves: Moves) -> None:
        self.m = moves

    def last(self, kind: Kind) -> FlatParameter | None:
        """The parameter that forward of a unit ended with."""
        return next(reversed(list(self.m.parameters.nested(kind).values())), None)

    def forward(
        self, draft: Draft, index: int, where: str, gathered: bool, there: str = "", apart: int = -1
    ) -> hooks.Nested:
        """Around each module of unit ``index``; ``where`` names the events.

        ``there``: the parameter that was gathered ahead; ``apart``: the op whose backward has
        begun, which has no hooks in forward then.
        """
        whose, found = self.m.units[index], {}
        for op, parameter in self.m.parameters.nested(whose.kind).items():
            if op == apart:
                continue
            before, after = draft.part(), draft.part()
            if parameter.name != there:
                self.m.unshard(before, parameter, gathered=gathered)
            before.writes.append(wait_for_unshard)
            if self.m.setting.reshards:
                self.m.reshard(after, parameter, whose, parameter.register(f"freed.{where}"))
            found[op] = (before.write, after.write)
        return found

    def backward(self, draft: Draft, index: int, micro: MicroStep) -> InBackward:
        """Of unit ``index``; a checkpoint that is not re-entrant runs again on the way."""
        kind = self.m.units[index].kind
        found = InBackward()
        gathered, ahead = not self.m.setting.reshards, self.m.setting.prefetch == "pre"
        nested = list(self.m.parameters.nested(kind).items())
        recomputes = bool(kind.recompute.regions) and not kind.reentrant
        first = _unpacks_first(kind) if recomputes else -1
        there = nested[-1][1].name if nested and ahead else ""
        for number in reversed(range(len(nested))):
            op, parameter = nested[number]
            if recomputes and op < first:
                found.again = self.forward(draft, index, "again", gathered, there)
                recomputes, there = False, ""
            pre, post = draft.part(), draft.part()
            self._pre_backward(pre, index, number, there)
            there = nested[number - 1][1].name if ahead and number else ""
            if recomputes and op == first:
                found.again = self.forward(draft, index, "again", gathered, there, apart=op)
                recomputes, there = False, ""
            self.m.post_backward(post, parameter, self.m.units[index], micro)
            found.before[op], found.after[parameter.name] = pre.write, post.write
        return found

    def _pre_backward(self, draft: Draft, index: int, number: int, there: str) -> None:
        """Gather the ``number``-th if it is not ``there``, and then what ran before it."""
        gathered = not self.m.setting.reshards
        nested = list(self.m.parameters.nested(self.m.units[index].kind).values())
        if nested[number].name != there:
            self.m.unshard(draft, nested[number], gathered=gathered)
        draft.writes.append(wait_for_unshard)
        if self.m.setting.prefetch != "pre":
            return
        if number:
            self.m.unshard(draft, nested[number - 1], gathered=gathered)
        else:
            self.m.prefetch_backward(draft, index)


def _unpacks_first(kind: Kind) -> int:
    """The op whose node is the first that unpacks what the checkpoint makes again."""
    ops = kind.graph.ops
    return max(index for index, op in enumerate(ops) if op.saves or op.borrows)
