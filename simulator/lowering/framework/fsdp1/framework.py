"""FSDP1's hooks: the order of events around each module, forward and backward."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.lowering.clipping import clip_flat
from simulator.lowering.framework.buffers import flat
from simulator.lowering.framework.fsdp1.flat import ROOT, FlatParameter, flat_of, root_flat
from simulator.lowering.framework.fsdp1.gather import Gather
from simulator.lowering.framework.fsdp1.limiter import FreeEventQueue
from simulator.lowering.framework.fsdp1.reduce import Reduce
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
from simulator.lowering.shards import Shard
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.model.graph import Weight
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Stream

WAITING = "waiting"
"""First word of registers of gradients that wait for the others of their flat parameter."""


@dataclass(slots=True)
class _Draft:
    """A hook that is being put together."""

    writes: list[Write] = field(default_factory=list)
    key: list[Hashable] = field(default_factory=list)
    roles: dict[str, Unit | str] = field(default_factory=dict)

    def write(self, w: BlockWriter) -> None:
        """All of it, in order."""
        for write in self.writes:
            write(w)

    def hook(self) -> Hook:
        """The hook."""
        return Hook(write=self.write, key=tuple(self.key), roles=self.roles)


class Fsdp1:
    """``FullyShardedDataParallel``.

    The root holds what no unit wraps, and is never resharded after forward. The program is rank
    0's: with original parameters the others hold other parts of them, of as many bytes in all.
    """

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.setting = setting_of(plan)
        _refuse(plan, units)
        self._units = units
        self._wrapped = [index for index, unit in enumerate(units) if unit.kind.wrapped]
        self._prefetches_forward = plan.parallelism.fsdp.forward_prefetch > 0
        self.gather, self.reduce = Gather(self.setting), Reduce(self.setting)
        self._aligned = self.setting.compute if self.setting.original else None
        self.root = root_flat(units, self.setting.world, self._aligned)
        self._flats: dict[tuple[str, str], FlatParameter] = {}
        self._queue = FreeEventQueue(limited=self.setting.limited)

    @property
    def resident(self) -> frozenset[str]:
        """Gradients of original parameters go at the next forward, not in ``zero_grad``."""
        return frozenset({"shard", "gradients"} if self.setting.original else {"shard"})

    def flat(self, kind: Kind, role: str = "own") -> FlatParameter:
        """The flat parameter of a wrapped unit in a role."""
        key = (kind.name, role)
        if key not in self._flats:
            own = flat_of(kind, self.setting.world, self._aligned)
            self._flats[key] = own.playing(role)
        return self._flats[key]

    # -- parameters

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """Rank 0's parts of the original parameters, or the shards of flat ones.

        The root's flat parameter is registered first of all, so it counts with the embedding.
        """
        if not self.setting.original:
            return tuple(
                Shard(weight=_flat_weight(each), shape=(each.shard,), world=each.world)
                for each in self._held_with(kind)
            )
        home = kind.graph
        found = self.flat(kind) if kind.wrapped else self.root
        return tuple(
            Shard(weight=m.weight, shape=(m.within(found.shard),), world=found.world)
            for m in found.members
            if m.weight in home.weights and m.within(found.shard)
        )

    def _held_with(self, kind: Kind) -> list[FlatParameter]:
        """Flat parameters whose shards are a unit's."""
        held = [self.root] if kind.name == "embedding" else []
        return [*held, self.flat(kind)] if kind.wrapped else held

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """One shard a flat parameter."""
        for each in self._held_with(kind):
            category = Category.PARAMETERS
            name = _flat_weight(each).name
            tensor = flat(name, each.shard, self.setting.stored, category, each.first)
            w.alloc(tensor, slot=w.shared("own", f"shard.{name}"))

    def start(self) -> Hook:
        """Nothing."""
        return Hook()

    # -- forward

    def begin_forward(self, micro: MicroStep, step: int) -> Hook:
        """``_root_pre_forward``, then the root's own ``_pre_forward``."""
        draft = _Draft()
        everyone = [self.root, *(self.flat(u.kind, u.label) for u in self._wrapped_units())]
        first = step == 0 and not micro.later
        if first:
            draft.writes.append(partial(self.gather.init_lazily, parameters=everyone))
        streams = (Stream.UNSHARD, Stream.PRE_UNSHARD)
        draft.writes.append(partial(_wait_for_compute, streams=streams))
        if self.setting.original and step > 0 and not micro.later:
            draft.writes.append(partial(_drop_gradients, parameters=everyone))
        draft.key += [first, step > 0 and not micro.later]
        self._unshard(draft, self.root, gathered=self._stayed(micro))
        draft.writes.append(_wait_for_unshard)
        self._prefetch_forward(draft, -1, micro, step)
        return draft.hook()

    def _wrapped_units(self) -> Iterator[Unit]:
        return (self._units[index] for index in self._wrapped)

    def _stayed(self, micro: MicroStep) -> bool:
        """Whether an earlier micro-step, which reduced nothing, left a parameter unsharded."""
        return micro.accumulated and not self.setting.reshards

    def forward(self, unit: int, micro: MicroStep, step: int) -> Forward:
        """Around a wrapped unit."""
        kind = self._units[unit].kind
        if not kind.wrapped:
            return Forward()
        draft, ahead = _Draft(), self._ordered(micro, step)
        if not ahead:
            self._unshard(draft, self.flat(kind), gathered=self._stayed(micro))
        draft.writes.append(_wait_for_unshard)
        self._prefetch_forward(draft, unit, micro, step)
        before, after = draft.hook(), _Draft()
        if self.setting.reshards:
            self._reshard(after, self.flat(kind), self._units[unit], "freed.forward")
        return Forward(
            before=before.write,
            after=after.write,
            key=("gathered" if ahead else "gathers", *before.key),
            roles=before.roles,
        )

    def _ordered(self, micro: MicroStep, step: int) -> bool:
        """Whether forward gathers ahead: from its second run on, when it knows the order."""
        return self._prefetches_forward and (step > 0 or micro.later)

    def _prefetch_forward(self, draft: _Draft, index: int, micro: MicroStep, step: int) -> None:
        following = [number for number in self._wrapped if number > index]
        if self._ordered(micro, step) and following:
            unit = self._units[following[0]]
            parameter = self.flat(unit.kind, "ahead")
            draft.key += ["ahead", unit.kind.name]
            draft.roles["ahead"] = unit
            self._unshard(draft, parameter, gathered=self._stayed(micro))

    def end_forward(self, micro: MicroStep, step: int) -> Hook:
        """The root stays."""
        return Hook()

    # -- gathering

    def _unshard(self, draft: _Draft, parameter: FlatParameter, *, gathered: bool) -> None:
        """``_unshard``: the limiter is asked even where all is there already."""
        event = self._queue.dequeue_if_needed()
        limit = None
        if event is not None:
            role = f"limit.{parameter.role}"
            limit, draft.roles[role] = (role, event[1]), event[0]
        draft.key += ["limited" if limit else "free", event and event[1], gathered]
        if gathered:
            draft.writes.append(partial(self.gather.hold_back, limit=limit))
        else:
            draft.writes.append(partial(self.gather.unshard, parameter=parameter, limit=limit))

    def _reshard(
        self, draft: _Draft, parameter: FlatParameter, whose: Unit | str, event: str
    ) -> None:
        draft.writes.append(partial(self.gather.reshard, parameter=parameter, event=event))
        self._queue.enqueue((whose, event))

    # -- backward

    def begin_backward(self, *, first: bool) -> Hook:
        """The root's ``_pre_backward_hook``: it is unsharded, and prefetches the last unit."""
        draft = _Draft()
        if first:
            self._unshard(draft, self.root, gathered=True)
            draft.writes.append(_wait_for_unshard)
            if self.setting.prefetch == "pre":
                self._prefetch_backward(draft, len(self._units))
        return draft.hook()

    def _prefetch_backward(self, draft: _Draft, index: int) -> None:
        before = [number for number in self._wrapped if number < index]
        if before:
            unit = self._units[before[-1]]
            parameter = self.flat(unit.kind, "ahead")
            draft.key += ["ahead", unit.kind.name]
            draft.roles["ahead"] = unit
            self._unshard(draft, parameter, gathered=not self.setting.reshards)

    def backward(self, unit: int, micro: MicroStep, step: int) -> Backward:
        """Around a unit; what the root holds waits for it.

        A flat parameter's gradients are put together by the node that split it in forward. Where
        forward gathered it ahead, that was before the module before it ran, and so in backward
        it comes after that one.
        """
        this, before, after = self._units[unit], _Draft(), _Draft()
        prefetch, ahead = self.setting.prefetch, self._ordered(micro, step)
        if this.kind.wrapped:
            if prefetch == "none" or (prefetch == "post" and (ahead or unit == self._wrapped[-1])):
                own = self.flat(this.kind)
                self._unshard(before, own, gathered=not self.setting.reshards)
            before.writes.append(_wait_for_unshard)
            if prefetch == "pre":
                self._prefetch_backward(before, unit)
        due = self._due(unit, ahead)
        for number, late in enumerate(due):
            role = "own" if late is this else f"late.{number}"
            after.roles[role] = late
            after.key.append(late.kind.name)
            following = unit if prefetch == "post" and not ahead else None
            self._post_backward(after, self.flat(late.kind, role), late, micro, following)
        waits = this not in due
        after.roles.pop("own", None)
        return Backward(
            before=before.write,
            after=partial(_after, kind=this.kind, then=after.write),
            key=(*before.key, "then", *after.key, waits, micro),
            roles={**before.roles, **after.roles},
        )

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

    def _post_backward(
        self,
        draft: _Draft,
        parameter: FlatParameter,
        whose: Unit | str,
        micro: MicroStep,
        index: int | None = None,
    ) -> None:
        """``_post_backward_hook`` behind the split's node: reshard, then reduce.

        Between the two it gathers what comes before unit ``index``, if one is given.
        """
        if micro.reduce or self.setting.reshards:
            self._queue.enqueue((whose, "freed.backward"))
        prefetch = _Draft()
        if index is not None:
            self._prefetch_backward(prefetch, index)
        write = partial(self._write_post, parameter=parameter, micro=micro, then=prefetch.write)
        draft.writes.append(write)
        draft.key += prefetch.key
        draft.roles |= prefetch.roles

    def _write_post(
        self, w: BlockWriter, parameter: FlatParameter, micro: MicroStep, then: Write
    ) -> None:
        slots = [w.shared(m.home, f"{WAITING}.{m.weight.name}") for m in parameter.members]
        fresh = gradient = self.reduce.flatten(w, parameter, slots)
        if micro.accumulated:
            gradient = self.reduce.add(w, parameter)
        if micro.reduce or self.setting.reshards:
            self.gather.reshard(w, parameter, "freed.backward")
        then(w)
        if micro.reduce:
            self.reduce.reduce(w, parameter, gradient, micro)
        elif not micro.accumulated:
            self.reduce.keep(w, parameter, gradient)
        if micro.accumulated:
            w.free(fresh)

    def end_backward(self, micro: MicroStep, step: int) -> Hook:
        """The root's ``_post_backward_hook``, then ``_post_backward_final_callback``."""
        draft = _Draft(key=[micro])
        self._post_backward(draft, self.root, ROOT, micro)
        if micro.reduce:
            awaited = [Stream.POST_BACKWARD]
            if self.setting.replicas > 1:
                awaited.append(Stream.ALL_REDUCE)
            draft.writes.append(partial(_wait_for_reductions, awaited=awaited))
        return draft.hook()

    # -- step

    def clip(self, w: BlockWriter, shards: Sequence[Shard], step: int) -> None:
        """FSDP1's own ``clip_grad_norm_``; it makes a zero, and keeps it."""
        if step == 0:
            zero = flat("zero_scalar", 1, DType.FP32, Category.BUFFERS, "optimizer")
            w.alloc(zero, slot=w.shared("own", "buffer.zero_scalar"))
        clip_flat(w, shards, self.setting.stored)

    def rounds(self) -> Sequence[Round]:
        """One."""
        return ONE_ROUND

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """A flat parameter's gradient goes; those of original parameters are views, and don't."""
        if kind.wrapped and not self.setting.original:
            w.free(w.shared("own", "gradients"))

    def end_step(self, w: BlockWriter) -> None:
        """The root's gradient, likewise."""
        if not self.setting.original:
            w.free(w.shared(ROOT, "gradients"))


def _refuse(plan: Plan, units: Sequence[Unit]) -> None:
    fsdp = plan.parallelism.fsdp
    for asked, text in (
        (plan.parallelism.dp_shard == 1, "with dp_shard: 1 (its NO_SHARD); use ddp or single"),
        (units[-1].kind.wrapped, "with norm and head in one unit; use wrap: block"),
        (plan.training.fine_tuning is not None, "with frozen weights or adapters; use fsdp2"),
        (plan.offload_parameters, "with parameters on the host; use fsdp2"),
        (
            fsdp.use_orig_params and not all(u.kind.wrapped for u in units[1:-1]),
            "with use_orig_params where the root holds blocks; use wrap: block, "
            "or use_orig_params: false",
        ),
    ):
        if asked:
            raise UnsupportedError(f"fsdp1 is not yet supported {text}")


def _flat_weight(parameter: FlatParameter) -> Weight:
    """A flat parameter as the optimizer sees it."""
    name = "root.flat_param" if parameter.role == ROOT else "flat_param"
    return Weight(name=name, shape=(parameter.numel,), module=parameter.first)


def _after(w: BlockWriter, gradients: Gradients, kind: Kind, then: Write) -> None:
    """A unit's gradients wait; then those are put together that are complete."""
    for name, slot in gradients.items():
        w.promote(slot, "own", f"{WAITING}.{name}")
    then(w)


def _drop_gradients(w: BlockWriter, parameters: Sequence[FlatParameter]) -> None:
    """``_reset_flat_param_grad_info_if_needed``: no original parameter has a gradient any more."""
    w.free_all(w.shared(parameter.role, "gradients") for parameter in parameters)


def _wait_for_compute(w: BlockWriter, streams: Sequence[Stream]) -> None:
    w.wait_stream(streams, Stream.COMPUTE)


def _wait_for_unshard(w: BlockWriter) -> None:
    w.wait_stream((Stream.COMPUTE,), Stream.UNSHARD)


def _wait_for_reductions(w: BlockWriter, awaited: Sequence[Stream]) -> None:
    for stream in awaited:
        w.wait_stream((Stream.COMPUTE,), stream)
