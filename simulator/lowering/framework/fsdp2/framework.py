"""Who stands around whom under FSDP2: each hook with the units that play a role in it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from simulator.lowering.clipping import clip_dtensors
from simulator.lowering.framework.fsdp2.float8 import alloc_scale
from simulator.lowering.framework.fsdp2.hooks import Hooks
from simulator.lowering.framework.hooks import (
    ONE_ROUND,
    Backward,
    Forward,
    Hook,
    Round,
    nothing,
)
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.shards import Shard, alloc_shards, shards_of, trained
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan

ROOT = "root"


class Fsdp2:
    """``fully_shard``. All steps are alike."""

    resident = frozenset({"shard", "scale"})

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.hooks, self._units = Hooks(plan, units), units
        self._precision = plan.training.trained_precision
        self._wrapped = [index for index, unit in enumerate(units) if unit.kind.wrapped]
        everyone = range(len(units))
        self._early = {target for index in everyone for target in self._gathered_ahead(index)}
        self._before = self._last_before()
        self._reduced = self._next_reduced()
        head = units[-1].kind
        self._skipped = head if head.wrapped and head.skipped else None
        self._forwards: dict[tuple[int, MicroStep], Forward] = {}
        self._backwards: dict[tuple[int, MicroStep], Backward] = {}

    # -- parameters

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """Each parameter is cut along dim 0."""
        return trained(shards_of(kind.graph, self.hooks.setting.world))

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """Each parameter's shard is an allocation of its own; offloaded, it is on the host."""
        if not self.hooks.setting.offload:
            shards = shards_of(kind.graph, self.hooks.setting.world)
            alloc_shards(w, shards, self.hooks.setting.stored)
            for shard in shards:
                alloc_scale(w, shard.weight)

    def start(self) -> Hook:
        """Nothing."""
        return Hook()

    # -- forward

    def begin_forward(self, micro: MicroStep, step: int) -> Hook:
        """``_root_pre_forward``."""
        return Hook(write=partial(self.hooks.begin_forward, micro=micro), key=(micro,))

    def forward(self, unit: int, micro: MicroStep, step: int) -> Forward:
        """Around a wrapped unit."""
        key = (unit, micro)
        if key not in self._forwards:
            self._forwards[key] = self._forward(unit, micro)
        return self._forwards[key]

    def _forward(self, index: int, micro: MicroStep) -> Forward:
        kind = self._units[index].kind
        if not kind.wrapped:
            return Forward()
        hooks, behind = self.hooks, self._behind(index)
        targets = [self._units[target] for target in self._gathered_ahead(index)]
        early = index in self._early
        kinds = [target.kind for target in targets]
        roles: dict[str, Unit | str] = {} if behind is None else {"behind": behind}
        return Forward(
            before=partial(
                self.hooks.pre_forward,
                kind=kind,
                behind=behind is not None,
                ahead=kinds,
                micro=micro,
                gathered=early,
            ),
            between=partial(self.hooks.between_modules, kind=kind),
            after=nothing if kind is self._skipped else partial(hooks.post_forward, kind=kind),
            key=("after", _name(behind), *(each.name for each in kinds), early, micro),
            roles={**roles, **{f"ahead.{n}": target for n, target in enumerate(targets)}},
        )

    def _last_before(self) -> list[Unit | None]:
        """By index, the last wrapped unit before it; one entry more than there are units."""
        found: list[Unit | None] = [None]
        for unit in self._units:
            found.append(unit if unit.kind.wrapped else found[-1])
        return found

    def _behind(self, index: int) -> Unit | str | None:
        """Who gathered last before unit ``index``; its buffer lives on."""
        return self._before[index] or (ROOT if self.hooks.root else None)

    def _gathered_ahead(self, index: int) -> Sequence[int]:
        """``set_modules_to_forward_prefetch``: each block gathers the next few blocks."""
        ahead, units = self.hooks.options.forward_prefetch, self._units
        if not ahead:
            return ()
        blocks = [number for number in self._wrapped if units[number].layer is not None]
        if index not in blocks:
            return ()
        first = index + 1 if index == blocks[0] else index + ahead
        return [number for number in range(first, index + ahead + 1) if number <= blocks[-1]]

    def end_forward(self, micro: MicroStep, step: int) -> Hook:
        """The root's ``_post_forward``."""
        behind = self._behind(len(self._units))
        return Hook(
            write=partial(self.hooks.end_forward, micro=micro, skipped=self._skipped),
            key=(micro,),
            roles={} if behind is None else {"behind": behind},
        )

    # -- backward

    def begin_backward(self, *, first: bool) -> Hook:
        """The root's hook on an output."""
        ahead = None
        if first and self.hooks.root and self._wrapped:
            ahead = self._units[self._wrapped[-1]]
            if self._skipped is not None:
                ahead = self._before[-2]
        return Hook(
            write=partial(self.hooks.begin_backward, ahead=_kind(ahead)),
            key=(_name(ahead),),
            roles={} if ahead is None else {"ahead": ahead},
        )

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """Around a unit; what no unit of its own wraps leaves its gradients to the root."""
        key = (unit, micro)
        if key not in self._backwards:
            self._backwards[key] = self._backward(unit, micro)
        return self._backwards[key]

    def _backward(self, index: int, micro: MicroStep) -> Backward:
        kind, hooks = self._units[index].kind, self.hooks
        existing = partial(hooks.existing, kind=kind, micro=micro)
        leave = partial(hooks.leave_to_root, micro=micro)
        ahead = self._before[index]
        pending = self._reduced[index + 1] if micro.reduce else None
        key: tuple[Hashable, ...] = ("ahead", _name(ahead), "pending", _name(pending), micro)
        left = "given" if hooks.adds_in_place(micro) else hooks.waits_as(micro)
        if not kind.wrapped:
            return Backward(existing=existing, after=leave, left=left, key=key)
        if kind is self._skipped and hooks.root:
            ahead = None  # the root's hook came first
        first = not hooks.root and index == self._wrapped[-1]
        after = partial(hooks.post_backward, kind=kind, micro=micro, pending=pending is not None)
        roles: dict[str, Unit | str] = {} if ahead is None else {"ahead": ahead}
        return Backward(
            before=partial(
                hooks.pre_backward,
                kind=kind,
                ahead=None if ahead is None else ahead.kind,
                first=first,
            ),
            existing=existing,
            again=partial(hooks.pre_backward_again, kind=kind),
            after=leave if hooks.deferred(kind) else after,
            left=left,
            key=(*key, first),
            roles=roles if pending is None else {**roles, "pending": pending},
        )

    def _next_reduced(self) -> list[Unit | None]:
        """By index, the unit whose reduction is in flight when that one's backward begins."""
        found: list[Unit | None] = [None]
        for unit in reversed(self._units):
            kind, before = unit.kind, found[-1]
            if kind.wrapped and kind.graph.has_backward and not self.hooks.deferred(kind):
                before = unit if kind.graph.trained else None
            found.append(before)
        return found[::-1]

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """``_root_post_backward_final_callback``."""
        pending = self._reduced[0] if micro.reduce else None
        return Hook(
            write=partial(self.hooks.end_backward, pending=pending is not None, micro=micro),
            key=(micro, _name(pending)),
            roles={} if pending is None else {"pending": pending},
        )

    # -- step

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """``clip_grad_norm_`` over DTensors."""
        clip_dtensors(w, shards, self._precision.gradients, self.hooks.setting.world)

    def warm_up(self) -> Sequence[Round]:
        """None."""
        return ()

    def rounds(self) -> Sequence[Round]:
        """One."""
        return ONE_ROUND

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """A wrapped unit's."""
        if kind.wrapped:
            self.hooks.zero_grad(w, self.hooks.group(kind))

    def end_step(self, w: BlockWriter) -> None:
        """The root's gradients."""
        if self.hooks.root is not None:
            self.hooks.zero_grad(w, self.hooks.root)


def _name(unit: Unit | str | None) -> str | None:
    return unit.kind.name if isinstance(unit, Unit) else unit


def _kind(unit: Unit | None) -> Kind | None:
    return None if unit is None else unit.kind
