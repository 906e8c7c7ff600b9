"""What FSDP1's hooks do with flat parameters: gather, reshard, gather ahead, reduce."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simulator.lowering.framework.fsdp1.draft import Draft
from simulator.lowering.framework.fsdp1.flat import FlatParameter
from simulator.lowering.framework.fsdp1.gather import Gather
from simulator.lowering.framework.fsdp1.limiter import FreeEventQueue
from simulator.lowering.framework.fsdp1.parameters import Parameters
from simulator.lowering.framework.fsdp1.reduce import Reduce
from simulator.lowering.framework.fsdp1.setting import Setting
from simulator.lowering.framework.hooks import Write, nothing
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Stream

WAITING = "waiting"
"""First word of registers of gradients that wait for the others of their flat parameter."""

FREED = "freed.backward"
"""The event when a parameter is resharded in backward."""


class Moves:
    """Adds them to drafts, in the order in which the host comes to them."""

    def __init__(self, setting: Setting, units: Sequence[Unit]) -> None:
        self.setting, self.units = setting, units
        self.wrapped = [index for index, unit in enumerate(units) if unit.kind.wrapped]
        self.parameters = Parameters(setting, units)
        self.gather, self.reduce = Gather(setting), Reduce(setting)
        self._queue = FreeEventQueue(limited=setting.limited)

    def unshard(self, draft: Draft, parameter: FlatParameter, *, gathered: bool) -> None:
        """``_unshard``: the limiter is asked even where all is there already."""
        limit = draft.limit(self._queue.dequeue_if_needed())
        draft.key.append(gathered)
        if gathered:
            draft.writes.append(partial(self.gather.hold_back, limit=limit))
        else:
            draft.writes.append(partial(self.gather.unshard, parameter=parameter, limit=limit))

    def reshard(
        self, draft: Draft, parameter: FlatParameter, whose: Unit | str, event: str
    ) -> None:
        """``_reshard``, where that frees."""
        draft.writes.append(partial(self.gather.reshard, parameter=parameter, event=event))
        self._queue.enqueue((whose, event))

    def prefetch_backward(self, draft: Draft, index: int) -> None:
        """Gather what ran before unit ``index``, if its outputs have hooks that ask for it."""
        before = [number for number in self.wrapped if number < index]
        if before and _hooked(self.units[before[-1]].kind):
            unit = self.units[before[-1]]
            parameter = self.parameters.own(unit.kind, "ahead")
            draft.key += ["ahead", unit.kind.name]
            draft.roles["ahead"] = unit
            self.unshard(draft, parameter, gathered=not self.setting.reshards)

    def post_backward(
        self,
        draft: Draft,
        parameter: FlatParameter,
        whose: Unit | str,
        micro: MicroStep,
        index: int | None = None,
    ) -> None:
        """``_post_backward_hook`` behind the split's node: reshard, then reduce.

        Between the two it gathers what comes before unit ``index``, if one is given. Frozen
        parameters are resharded when the gradients of the unit's inputs are there
        (``_post_backward_reshard_only_hook``), if they have any; if not, when backward ends.
        """
        stays = isinstance(whose, Unit) and not whose.kind.graph.input_requires_grad
        if stays and not parameter.trained:
            return
        event = parameter.register(FREED)
        if self.frees(micro):
            self._queue.enqueue((whose, event))
        prefetch = draft.part()
        if index is not None:
            self.prefetch_backward(prefetch, index)
        write = self._write_post if parameter.trained else self._write_reshard
        draft.writes.append(
            partial(write, parameter=parameter, micro=micro, event=event, then=prefetch.write)
        )

    def frees(self, micro: MicroStep) -> bool:
        """``_should_free_in_backward``."""
        return micro.reduce or self.setting.reshards

    def _write_reshard(
        self,
        w: BlockWriter,
        parameter: FlatParameter,
        micro: MicroStep,
        event: str,
        then: Write = nothing,
    ) -> None:
        if self.frees(micro):
            self.gather.reshard(w, parameter, event)
        then(w)

    def _write_post(
        self, w: BlockWriter, parameter: FlatParameter, micro: MicroStep, event: str, then: Write
    ) -> None:
        slots = [w.shared(m.home, f"{WAITING}.{m.weight.name}") for m in parameter.members]
        fresh = gradient = self.reduce.flatten(w, parameter, slots)
        if micro.accumulated:
            gradient = self.reduce.add(w, parameter)
        self._write_reshard(w, parameter, micro, event, then)
        if micro.reduce:
            self.reduce.reduce(w, parameter, gradient, micro)
        elif not micro.accumulated:
            self.reduce.keep(w, parameter, gradient)
        if micro.accumulated:
            w.free(fresh)


def _hooked(kind: Kind) -> bool:
    """Whether forward hooked the outputs: a re-entrant checkpoint's run without gradients."""
    return kind.graph.has_backward and not kind.reentrant


def wait_for_unshard(w: BlockWriter) -> None:
    """Before a module runs."""
    w.wait_stream((Stream.COMPUTE,), Stream.UNSHARD)
