"""FSDP1's hooks: the order of events around each module, forward and backward."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from simulator.dtypes import DType
from simulator.lowering.clipping import clip_flat
from simulator.lowering.framework.buffers import flat
from simulator.lowering.framework.fsdp1.draft import Draft
from simulator.lowering.framework.fsdp1.flat import ROOT, FlatParameter
from simulator.lowering.framework.fsdp1.moves import WAITING, Moves, wait_for_unshard
from simulator.lowering.framework.fsdp1.nested import Nested
from simulator.lowering.framework.fsdp1.parameters import flat_weight
from simulator.lowering.framework.fsdp1.refusals import refuse
from simulator.lowering.framework.fsdp1.setting import setting_of
from simulator.lowering.framework.hooks import (
    ONE_ROUND,
    Backward,
    Forward,
    Gradients,
    Hook,
    Round,
    Write,
)
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.quantised import alloc_states
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Stream

OLD = "upcast"
"""First word of registers of shards as they were before they were upcast."""


class Fsdp1:
    """``FullyShardedDataParallel``.

    The root holds what no unit wraps, and is never resharded after forward. The program is rank
    0's: with original parameters the others hold other parts of them, of as many bytes in all.
    """

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.setting = setting_of(plan)
        self._units = units
        self._prefetches_forward = plan.parallelism.fsdp.forward_prefetch > 0
        self._moves = Moves(self.setting, units)
        self._nested = Nested(self._moves)
        self.parameters = self._moves.parameters
        self._wrapped, self.root = self._moves.wrapped, self.parameters.root
        self._gradients = plan.training.trained_precision.gradients
        refuse(plan, units, self.parameters)

    @property
    def resident(self) -> frozenset[str]:
        """Gradients of original parameters go at the next forward, not in ``zero_grad``."""
        return frozenset({"shard", "gradients"} if self.setting.original else {"shard"})

    # -- parameters

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """What the optimizer steps."""
        return self.parameters.shards(kind)

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """One shard a flat parameter."""
        for each in self.parameters.held_with(kind):
            name, category = flat_weight(each).name, Category.PARAMETERS
            tensor = flat(name, each.shard, each.stored, category, each.first)
            w.alloc(tensor, slot=w.shared("own", f"shard.{name}"))
            if self.setting.upcasts(each.stored):
                old = flat(name, each.shard, self.setting.stored, category, each.first)
                w.alloc(old, slot=w.shared("own", f"{OLD}.{name}"))
        for weight in kind.graph.weights:
            alloc_states(w, weight)

    def start(self) -> Hook:
        """Nothing."""
        return Hook()

    # -- forward

    def begin_forward(self, micro: MicroStep, step: int) -> Hook:
        """``_root_pre_forward``, then the root's own ``_pre_forward``."""
        draft = Draft()
        everyone = list(self.parameters.everyone())
        first = step == 0 and not micro.later
        if first:
            draft.writes.append(partial(self._moves.gather.init_lazily, parameters=everyone))
            upcast = [each for each in everyone if self.setting.upcasts(each.stored)]
            draft.writes.append(partial(_drop_old, parameters=upcast))
        streams = (Stream.UNSHARD, Stream.PRE_UNSHARD)
        draft.writes.append(partial(_wait_for_compute, streams=streams))
        if self.setting.original and step > 0 and not micro.later:
            draft.writes.append(partial(_drop_gradients, parameters=everyone))
        draft.key += [first, step > 0 and not micro.later]
        self._moves.unshard(draft, self.root, gathered=self._stayed(micro))
        draft.writes.append(wait_for_unshard)
        self._prefetch_forward(draft, -1, micro, step)
        return draft.hook()

    def _stayed(self, micro: MicroStep) -> bool:
        """Whether an earlier micro-step, which reduced nothing, left a parameter unsharded."""
        return micro.accumulated and not self.setting.reshards

    def forward(self, unit: int, micro: MicroStep, step: int) -> Forward:
        """Around a wrapped unit."""
        kind = self._units[unit].kind
        if not kind.wrapped:
            return Forward()
        draft, ahead = Draft(), self._ordered(micro, step)
        if not ahead:
            self._moves.unshard(draft, self.parameters.own(kind), gathered=self._stayed(micro))
        draft.writes.append(wait_for_unshard)
        self._prefetch_forward(draft, unit, micro, step)
        nested = self._nested.forward(draft, unit, "forward", self._stayed(micro))
        after = draft.part()
        if self.setting.reshards:
            self._moves.reshard(
                after, self.parameters.own(kind), self._units[unit], "freed.forward"
            )
        return Forward(
            before=draft.write,
            after=after.write,
            nested=nested,
            key=("gathered" if ahead else "gathers", *draft.key),
            roles=draft.roles,
        )

    def _ordered(self, micro: MicroStep, step: int) -> bool:
        """Whether forward gathers ahead: from its second run on, when it knows the order."""
        return self._prefetches_forward and (step > 0 or micro.later)

    def _prefetch_forward(self, draft: Draft, index: int, micro: MicroStep, step: int) -> None:
        following = [number for number in self._wrapped if number > index]
        if self._ordered(micro, step) and following:
            unit = self._units[following[0]]
            parameter = self.parameters.own(unit.kind, "ahead")
            draft.key += ["ahead", unit.kind.name]
            draft.roles["ahead"] = unit
            self._moves.unshard(draft, parameter, gathered=self._stayed(micro))

    def end_forward(self, micro: MicroStep, step: int) -> Hook:
        """The root stays."""
        return Hook()

    # -- backward

    def begin_backward(self, *, first: bool) -> Hook:
        """The root's ``_pre_backward_hook``: it is unsharded, and prefetches the last unit."""
        draft = Draft()
        if first:
            self._moves.unshard(draft, self.root, gathered=True)
            draft.writes.append(wait_for_unshard)
            if self.setting.prefetch == "pre":
                self._moves.prefetch_backward(draft, len(self._units))
        return draft.hook()

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """Around a unit; what the root holds waits for it.

        A flat parameter's gradients are put together by the node that split it in forward. Where
        forward gathered it ahead, that was before the module before it ran, and so in backward
        it comes after that one.
        """
        this, draft = self._units[unit], Draft()
        ahead, again = self._ordered(micro, step), self._again(draft, unit)
        before = draft.part()
        if this.kind.wrapped:
            self._pre_backward(before, unit, ahead)
        inside = self._nested.backward(draft, unit, micro)
        after, due = draft.part(), self._due(unit, ahead)
        following = unit if self.setting.prefetch == "post" and not ahead else None
        for number, late in enumerate(due):
            role = "own" if late is this else f"late.{number}"
            if role != "own":
                draft.roles[role] = late
            draft.key.append(late.kind.name)
            own = self.parameters.own(late.kind, role)
            self._moves.post_backward(after, own, late, micro, following)
        holds, held = self._holds(unit), self._holds(unit + 1)
        return Backward(
            before=before.write,
            before_again=again.before,
            after_again=again.after,
            nested=again.nested or inside.again,
            nested_backward=inside.before,
            accumulated=partial(_accumulated, posts=inside.after),
            after=partial(_after, apart=inside.after.keys(), then=after.write),
            holds_input=holds,
            held=held,
            key=(*draft.key, this not in due, micro, holds, held),
            roles=draft.roles,
        )

    def _holds(self, index: int) -> bool:
        """Whether a unit's input and its gradient stay until backward ends.

        The hook that reshards frozen parameters (``_register_post_backward_reshard_only_hook``)
        refers to the node that accumulates the input's gradient, where a re-entrant checkpoint
        detached the input; that node refers to the input, and the input to its hooks.
        """
        if index >= len(self._units) or not self._units[index].kind.wrapped:
            return False
        kind = self._units[index].kind
        return kind.reentrant and not self.parameters.own(kind).trained

    def _again(self, draft: Draft, unit: int) -> Forward:
        """Around a unit's forward that a re-entrant checkpoint, which is around it, runs again."""
        this = self._units[unit]
        if not (this.kind.wrapped and this.kind.reentrant):
            return Forward()
        before, after, own = draft.part(), draft.part(), self.parameters.own(this.kind)
        gathered = not self.setting.reshards
        self._moves.unshard(before, own, gathered=gathered)
        before.writes.append(wait_for_unshard)
        nested = self._nested.forward(draft, unit, "again", gathered)
        if self.setting.reshards:
            self._moves.reshard(after, own, this, "freed.again")
        return Forward(before=before.write, after=after.write, nested=nested)

    def _pre_backward(self, draft: Draft, unit: int, ahead: bool) -> None:
        """``_pre_backward_hook``: what was not gathered ahead is, and what ran before it."""
        kind, prefetch = self._units[unit].kind, self.setting.prefetch
        late = prefetch == "none" or (
            prefetch == "post" and (ahead or unit == self._wrapped[-1] or kind.reentrant)
        )
        gathered = not self.setting.reshards
        if late or kind.reentrant:
            self._moves.unshard(draft, self.parameters.own(kind), gathered=gathered)
        draft.writes.append(wait_for_unshard)
        nested = self._nested.last(kind)
        if prefetch == "pre" and nested is not None:
            self._moves.unshard(draft, nested, gathered=gathered)
        elif prefetch == "pre":
            self._moves.prefetch_backward(draft, unit)

    def _due(self, index: int, ahead: bool) -> list[Unit]:
        """Wrapped units whose gradients are put together when unit ``index`` has run backward."""
        if not ahead:
            return [self._units[index]] if self._units[index].kind.wrapped else []
        found = []
        for number in reversed(self._wrapped):
            earlier = [other for other in self._wrapped if other < number]
            if index == (earlier[-1] if earlier else 0):
                found.append(self._units[number])
        return found

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """The root's ``_post_backward_hook``, then ``_post_backward_final_callback``.

        The latter reshards what no hook has, and drops the hooks.
        """
        draft = Draft(key=[micro])
        if self.root.trained:
            self._moves.post_backward(draft, self.root, ROOT, micro)
        if micro.reduce:
            awaited = [Stream.POST_BACKWARD]
            if self.setting.replicas > 1:
                awaited.append(Stream.ALL_REDUCE)
            draft.writes.append(partial(_wait_for_reductions, awaited=awaited))
        if not self.root.trained:
            self._moves.post_backward(draft, self.root, ROOT, micro)
        for index in self._wrapped:
            self._finalize(draft, index, micro)
        return draft.hook()

    def _finalize(self, draft: Draft, index: int, micro: MicroStep) -> None:
        """``_catch_all_reshard`` and ``_finalize_params`` of one unit."""
        unit, before = self._units[index], self._units[index - 1]
        own = self.parameters.own(unit.kind, unit.label)
        graph = unit.kind.graph
        stays = not own.trained and graph.has_backward and not graph.input_requires_grad
        if stays and (micro.reduce or self.setting.reshards):
            self._moves.reshard(draft, own, unit, "freed.backward")
        if self._holds(index):
            names = (
                ["grad.held"]
                if index == 1 and not self._units[0].kind.graph.has_backward
                else ["grad", "out"]
            )
            draft.writes.append(partial(_drop, whose=before.label, names=names))

    # -- step

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """FSDP1's own ``clip_grad_norm_``; it makes a zero, and keeps it."""
        if step == 0:
            zero = flat("zero_scalar", 1, DType.FP32, Category.BUFFERS, "optimizer")
            w.alloc(zero, slot=w.shared("own", "buffer.zero_scalar"))
        clip_flat(w, shards, self._gradients)

    def rounds(self) -> Sequence[Round]:
        """One."""
        return ONE_ROUND

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """A flat parameter's gradient goes; those of original parameters are views, and don't."""
        if kind.wrapped and not self.setting.original:
            held = [self.parameters.own(kind), *self.parameters.nested(kind).values()]
            w.free_all(w.shared("own", each.register("gradients")) for each in held if each.trained)

    def end_step(self, w: BlockWriter) -> None:
        """The root's gradient, likewise."""
        if not self.setting.original and self.root.trained:
            w.free(w.shared(ROOT, "gradients"))


def _drop_old(w: BlockWriter, parameters: Sequence[FlatParameter]) -> None:
    """Original parameters become views of the upcast shards."""
    w.free_all(w.shared(each.role, f"{OLD}.{flat_weight(each).name}") for each in parameters)


def _accumulated(w: BlockWriter, name: str, slot: int, posts: Mapping[str, Write]) -> None:
    """A nested module's gradient is there: its own hook takes it."""
    if name in posts:
        w.promote(slot, "own", f"{WAITING}.{name}")
        posts[name](w)


def _after(w: BlockWriter, gradients: Gradients, apart: Collection[str], then: Write) -> None:
    """A unit's gradients wait; then those are put together that are complete."""
    for name, slot in gradients.items():
        if name not in apart:
            w.promote(slot, "own", f"{WAITING}.{name}")
    then(w)


def _drop(w: BlockWriter, whose: str, names: Sequence[str]) -> None:
    """What only a unit's hook still referred to."""
    w.free_all(w.shared(whose, name) for name in names)


def _drop_gradients(w: BlockWriter, parameters: Sequence[FlatParameter]) -> None:
    """``_reset_flat_param_grad_info_if_needed``: no original parameter has a gradient any more."""
    w.free_all(w.shared(p.role, p.register("gradients")) for p in parameters if p.trained)


def _wait_for_compute(w: BlockWriter, streams: Sequence[Stream]) -> None:
    w.wait_stream(streams, Stream.COMPUTE)


def _wait_for_reductions(w: BlockWriter, awaited: Sequence[Stream]) -> None:
    for stream in awaited:
        w.wait_stream((Stream.COMPUTE,), stream)
