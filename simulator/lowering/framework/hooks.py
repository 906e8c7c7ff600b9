"""What a framework writes around the modules of a step, and whose registers that code names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from simulator.lowering.assembly import Roles
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter

Write = Callable[[BlockWriter], None]

Gradients = Mapping[str, int]
"""Slots by weight name."""


def nothing(w: BlockWriter) -> None:
    """Write nothing."""


def no_gradients(w: BlockWriter) -> Gradients:
    """No gradient is there yet."""
    return {}


def every(_: Shard) -> bool:
    """All shards."""
    return True


def leave(w: BlockWriter, name: str, slot: int) -> None:
    """Leave a gradient where it is."""


def leave_all(w: BlockWriter, gradients: Gradients) -> None:
    """Likewise for all of a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Code at one point of a step.

    ``key``: what it depends on, beside the unit's kind. ``roles``: who plays which role in it,
    beside the unit itself, ``own``.
    """

    write: Write = nothing
    key: tuple[Hashable, ...] = ()
    roles: Roles = field(default_factory=dict)


Nested = Mapping[int, tuple[Write, Write]]
"""By op of a unit that is a module hooked for itself: what comes before it, and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Around one unit's forward. ``between``: before each module of it but the first."""

    before: Write = nothing
    between: Write = nothing
    after: Write = nothing
    nested: Nested = field(default_factory=dict)
    key: tuple[Hashable, ...] = ()
    roles: Roles = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """Around one unit's backward.

    ``existing``: gradients that earlier micro-steps left, to which autograd adds in place.
    ``accumulated``: the hook behind AccumulateGrad, when one weight's gradient is there (its name
    and slot). ``again``: when the gradient of what it returns beside its output is there.
    ``after``: when all are there, and the gradient of the unit's input too. ``left``: first word of
    the registers in which ``after`` leaves them, if it does. ``nested``: as in forward, where a
    checkpoint runs it again; ``nested_backward``: before the backward of such a module.
    ``before_again`` and ``after_again``: around the unit's forward where a re-entrant checkpoint
    runs it again. ``holds_input``: the unit's input and its gradient stay until backward ends;
    ``held``: the gradient that comes in does.
    """

    before: Write = nothing
    before_again: Write = nothing
    after_again: Write = nothing
    nested: Nested = field(default_factory=dict)
    nested_backward: Mapping[int, Write] = field(default_factory=dict)
    holds_input: bool = False
    held: bool = False
    existing: Callable[[BlockWriter], Gradients] = no_gradients
    accumulated: Callable[[BlockWriter, str, int], None] = leave
    again: Write = nothing
    after: Callable[[BlockWriter, Gradients], None] = leave_all
    left: str = "given"
    key: tuple[Hashable, ...] = ()
    roles: Roles = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One ``optimizer.step()`` of a training step, and what the framework does around it.

    ``takes``: whether a shard is stepped in it. ``name`` tells it from the others of the step.
    """

    name: str = ""
    before: Hook = field(default_factory=Hook)
    after: Hook = field(default_factory=Hook)
    takes: Callable[[Shard], bool] = every


ONE_ROUND = (Round(),)
"""All shards in one ``optimizer.step()`` with nothing around it."""
