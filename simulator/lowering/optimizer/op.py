"""An optimizer's step as data: the calls that it makes on one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.kernels import Kernel
from simulator.lowering.shards import Shard
from simulator.program.instructions import Collective, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One call on one parameter.

    ``makes``: a local name and the tensor that is allocated before the kernel, a state where it
    ``stays``. ``drops``: locals that go after it. ``unbinds``, ``binds``: variables of the loop
    over the parameters, which hold a local of one parameter until the same line of a later one
    binds them again; what a variable held before goes then.
    """

    work: Kernel | Collective | None = None
    makes: tuple[str, Tensor] | None = None
    stays: bool = False
    drops: tuple[str, ...] = ()
    unbinds: tuple[str, ...] = ()
    binds: tuple[tuple[str, str], ...] = ()


Ops = Sequence[Op]

IDLE = Op()
"""A parameter that has no part in a call over others."""


def nothing(_: Shard) -> Ops:
    """No states, or none that are born before the first update."""
    return ()


def never(_: Sequence[Shard]) -> Ops:
    """No tensors that an optimizer has once."""
    return ()


def every(_: Shard) -> bool:
    """All parameters."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parameters that are stepped alike, one group after the other.

    ``looped``: parameter by parameter; else each call goes over all of them (``_foreach_*``,
    fused). ``takes``: whether a parameter is of the group. ``once``: what the first step
    allocates for all of them, ``states``: for each, before any is updated. ``step``: the calls of
    an update, and whether it is the first. All have as many calls where they are not looped.
    """

    name: str
    looped: bool
    step: Callable[[Shard, bool], Ops]
    states: Callable[[Shard], Ops] = nothing
    once: Callable[[Sequence[Shard]], Ops] = never
    takes: Callable[[Shard], bool] = every


Optimizer = Sequence[Group]
