"""FSDP2's hooks: the order of events around each module, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import UnsupportedError
from simulator.lowering.framework.fsdp2.float8 import replace_scales
from simulator.lowering.framework.fsdp2.gather import GATHERING, Gather
from simulator.lowering.framework.fsdp2.groups import Group, own_group, root_group, setting_of
from simulator.lowering.framework.fsdp2.reduce import Reduce, accumulated
from simulator.lowering.framework.hooks import Gradients
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.optimizer.in_backward import in_backward
from simulator.lowering.units import Kind, Unit
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import FP8_GATHERED, Plan
from simulator.program.instructions import Stream


class Hooks:
    """Writes the hooks of ``fully_shard`` under one plan.

    Roles: ``behind`` is the group whose gathered buffer forward still holds; ``ahead`` (in forward
    ``ahead.0``, ``ahead.1``, ...) groups that are gathered before they run; ``pending`` the group
    whose reduction is in flight; ``root`` what no unit of its own wraps.
    """

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self.options = plan.parallelism.fsdp
        self.setting = setting_of(plan, plan.training.precision)
        self._after = self.options.reshards_to(self.setting.world)
        self.gather = Gather(self.setting)
        self.in_backward = in_backward(plan)
        trained = setting_of(plan, plan.training.trained_precision)
        self.reduce = Reduce(trained, self.in_backward)
        self._units = units
        self.root = root_group(units, self.setting.world)
        self._groups: dict[tuple[str, str], Group] = {}
        self._refuse_what_no_backward_frees(plan)
        if plan.training.precision.fp8 == FP8_GATHERED and (
            self.setting.world == 1 or self.setting.offload or type(self._after) is int
        ):
            raise UnsupportedError(
                f"precision.fp8: {FP8_GATHERED!r} is not supported on one rank, with offloaded "
                "parameters or with reshard_after_forward: int; use 'tensorwise'",
                key="training.precision.fp8",
            )

    def _refuse_what_no_backward_frees(self, plan: Plan) -> None:
        """Modules below the first trained weight stay as forward left them, for steps on end."""
        unreached = [
            unit.kind
            for unit in self._units
            if unit.kind.wrapped and not unit.kind.graph.has_backward and self.reshards(unit.kind)
        ]
        accumulates = plan.training.grad_accum > 1
        for asked, key, value in (
            (
                any(self.kept(kind) is not None for kind in unreached),
                "reshard_after_forward",
                self.options.reshard_after_forward,
            ),
            (
                bool(unreached) and accumulates and not self.options.reshard_after_backward,
                "reshard_after_backward",
                "false",
            ),
        ):
            if asked:
                raise UnsupportedError(
                    f"{value} is not supported with frozen modules that no backward reaches "
                    f"({unreached[0].fqn}); use true, or train the embedding",
                    key=f"parallelism.fsdp.{key}",
                )

    def group(self, kind: Kind, role: str = "own") -> Group:
        """The group of a wrapped unit in a role."""
        key = (kind.name, role)
        if key not in self._groups:
            self._groups[key] = own_group(kind, self.setting.world, role)
        return self._groups[key]

    def kept(self, kind: Kind) -> int | None:
        """The k of ``reshard_after_forward=k``, for units that reshard to a slice."""
        if isinstance(self._after, bool) or not self.reshards(kind):
            return None
        return self._after

    def reshards(self, kind: Kind) -> bool:
        """Whether a unit drops its gathered parameters after forward.

        torchtitan never reshards [norm, head], and until 2025 not the last block: backward needs
        them at once.
        """
        if kind.name == "head" or (kind.last and not self.options.reshard_last_block):
            return False
        return self._after is not False

    def deferred(self, kind: Kind) -> bool:
        """Whether a wrapped unit's ``post_backward`` waits for the root's final callback.

        No gradient reaches the embedding's input, so autograd calls no hook there, nor at a block
        before which all is frozen: the callback does, root first, then in forward order.
        """
        if not kind.wrapped or kind.graph.input_requires_grad:
            return False
        return self.root is not None or kind.name != "embedding" or not kind.graph.has_backward

    # -- forward

    def begin_forward(self, w: BlockWriter, micro: MicroStep) -> None:
        """``_root_pre_forward``: gathering waits for the optimizer; then the root's own group."""
        w.wait_stream(GATHERING, Stream.COMPUTE)
        if self.root is not None:
            w.mark("pre_fwd.begin:root")
            if not micro.gathered:
                self.gather.unshard(w, self.root)
                self.gather.copy_out(w, self.root)
            w.mark("pre_fwd.end:root")

    def pre_forward(
        self,
        w: BlockWriter,
        kind: Kind,
        ahead: Sequence[Kind],
        micro: MicroStep,
        *,
        behind: bool,
        gathered: bool,
    ) -> None:
        """Gather, copy out; the buffer of the group behind goes at the end of the call."""
        w.mark(f"pre_fwd.begin:{kind.fqn}")
        if not micro.gathered:
            if not gathered:
                self.gather.unshard(w, self.group(kind))
            if behind:
                w.wait(w.event("behind", "copied_out"), *GATHERING)
            self.gather.copy_out(w, self.group(kind))
            replace_scales(w, self.group(kind))
            if behind:
                self.gather.drop_gathered(w, "behind")
        w.mark(f"pre_fwd.end:{kind.fqn}")
        if not micro.gathered:
            for number, target in enumerate(ahead):
                self.gather.unshard(w, self.group(target, f"ahead.{number}"))

    def between_modules(self, w: BlockWriter, kind: Kind) -> None:
        """A second module of the same unit finds it gathered."""
        w.mark(f"pre_fwd.begin:{kind.fqn}")
        w.mark(f"pre_fwd.end:{kind.fqn}")

    def post_forward(self, w: BlockWriter, kind: Kind) -> None:
        """Reshard, if the unit does."""
        w.mark(f"post_fwd.begin:{kind.fqn}")
        kept = self.kept(kind)
        if kept is not None:
            self.gather.reshard_to_slices(w, self.group(kind), kept)
        elif self.reshards(kind):
            self.gather.reshard(w, self.group(kind))
        w.mark(f"post_fwd.end:{kind.fqn}")

    def end_forward(self, w: BlockWriter, micro: MicroStep, skipped: Kind | None) -> None:
        """The root's ``_post_forward``: it stays gathered, and flushes the last buffer.

        It completes the forward of a group not all of whose modules ran (torch 2.13,
        ``_force_complete_incomplete_states``).
        """
        if self.root is not None:
            w.mark("post_fwd.begin:root")
            w.mark("post_fwd.end:root")
        if skipped is not None:
            self.post_forward(w, skipped)
        if not micro.gathered:
            w.wait(w.event("behind", "copied_out"), *GATHERING)
            self.gather.drop_gathered(w, "behind")

    # -- backward

    def begin_backward(self, w: BlockWriter, ahead: Kind | None) -> None:
        """The root's ``_pre_backward``: it is gathered, and gathers the last wrapped unit."""
        if self.root is not None:
            w.mark("pre_bwd.begin:root")
            self._gather_ahead(w, ahead)
            w.mark("pre_bwd.end:root")

    def pre_backward(self, w: BlockWriter, kind: Kind, ahead: Kind | None, *, first: bool) -> None:
        """Copy out what was gathered ahead, then gather the next unit in backward order."""
        w.mark(f"pre_bwd.begin:{kind.fqn}")
        if self.reshards(kind):
            if first:
                self._unshard_again(w, kind, "own")
            self.gather.copy_out(w, self.group(kind), sliced=self.kept(kind) is not None)
            if kind.recompute.regions:
                replace_scales(w, self.group(kind))
            w.wait(w.event("own", "copied_out"), *GATHERING)
            self.gather.drop_gathered(w, "own")
        self._gather_ahead(w, ahead)
        w.mark(f"pre_bwd.end:{kind.fqn}")

    def pre_backward_again(self, w: BlockWriter, kind: Kind) -> None:
        """The hook on a tensor that a module returns beside its output: all is gathered."""
        w.mark(f"pre_bwd.begin:{kind.fqn}")
        w.mark(f"pre_bwd.end:{kind.fqn}")

    def _gather_ahead(self, w: BlockWriter, ahead: Kind | None) -> None:
        if ahead is not None and self.reshards(ahead):
            self._unshard_again(w, ahead, "ahead")

    def _unshard_again(self, w: BlockWriter, kind: Kind, role: str) -> None:
        """Gathering reads what resharding wrote on the compute stream, so it waits for that."""
        if self.kept(kind) is not None:
            w.wait(w.event(role, "resharded"), *GATHERING)
        self.gather.unshard(w, self.group(kind, role), self.kept(kind))

    def adds_in_place(self, micro: MicroStep) -> bool:
        """Autograd finds ``.grad`` set where accumulated gradients were not converted."""
        return micro.accumulated and not self.reduce.converts

    def existing(self, w: BlockWriter, kind: Kind, micro: MicroStep) -> Gradients:
        """Those gradients of a unit's own weights, by name."""
        if not self.adds_in_place(micro):
            return {}
        names = [weight.name for weight in kind.graph.trained if not weight.tied]
        return {name: w.shared("own", f"accumulated.{name}") for name in names}

    def leave_to_root(self, w: BlockWriter, gradients: Gradients, micro: MicroStep) -> None:
        """Gradients of a unit without hooks wait for the root's; what is added to stays."""
        if not self.adds_in_place(micro):
            for name, slot in gradients.items():
                w.promote(slot, "own", f"{self.waits_as(micro)}.{name}")

    def waits_as(self, micro: MicroStep) -> str:
        """First word of the registers in which the root's gradients wait for the root."""
        stays = not micro.reduce and not self.reduce.converts
        return "accumulated" if stays else "unreduced"

    def post_backward(
        self,
        w: BlockWriter,
        gradients: Gradients,
        kind: Kind,
        micro: MicroStep,
        *,
        pending: bool,
    ) -> None:
        """Accumulate, reshard, drop the reduction in flight, reduce.

        The nodes that forward left had kept the scales of its gathering.
        """
        if self.reshards(kind) and not kind.recompute.regions:
            replace_scales(w, self.group(kind))
        w.mark(f"post_bwd.begin:{kind.fqn}")
        group = self.group(kind)
        slots = [gradients[member.name] for member in group.trained.members]
        self._post_backward(w, group, slots, micro, pending="pending" if pending else None)
        w.mark(f"post_bwd.end:{kind.fqn}")

    def _post_backward(
        self,
        w: BlockWriter,
        group: Group,
        gradients: Sequence[int],
        micro: MicroStep,
        *,
        pending: str | None,
        waited: Unit | str | None = None,
    ) -> None:
        """``pending``: role of the reduction in flight; ``waited``: who waited for the callback."""
        trained = group.trained
        if micro.accumulated:
            if self.reduce.converts:
                self.reduce.accumulate(w, trained, gradients)
            gradients = [accumulated(w, member) for member in trained.members]
        if micro.reshard:
            self._reshard_after_backward(w, group, waited)
        if micro.reduce:
            if pending is not None:
                self.reduce.drop_input(w, pending)
            if trained.members:
                self.reduce.reduce(w, trained, gradients, micro)
        elif not micro.accumulated and self.reduce.converts:
            self.reduce.convert(w, trained, gradients)
        elif not micro.accumulated and waited is None:
            self.reduce.keep(w, trained, gradients)

    def _reshard_after_backward(
        self, w: BlockWriter, group: Group, waited: Unit | str | None
    ) -> None:
        """A unit that no backward has run was gathered for none, and is as forward left it."""
        backward = not isinstance(waited, Unit) or waited.kind.graph.has_backward
        if isinstance(waited, Unit) and not backward and self.reshards(waited.kind):
            return
        self.gather.reshard(w, group)

    def end_backward(self, w: BlockWriter, pending: bool, micro: MicroStep) -> None:
        """``_root_post_backward_final_callback``: each state in turn, the root's before all.

        Groups whose hook autograd did not call reduce now; then a state lets go of what HSDP
        retained, and of a gathering that was for nothing.
        """
        last = reduced = "pending" if pending else None
        retaining: list[str] = []
        states: list[Unit | str] = [unit for unit in self._units if unit.kind.wrapped]
        if self.root is not None:
            states.insert(0, "root")
        for state in states:
            role = state if isinstance(state, str) else state.label
            if isinstance(state, str) or self.deferred(state.kind):
                if micro.reduce and retaining:
                    self._finalize(w, reduced, retaining, micro)
                    retaining = []
                last = self._waited(w, state, last, micro)
                reduced = last or reduced
            if state is self._gathered_for_nothing:
                w.wait(w.event(role, "all_gathered"), Stream.COMPUTE)
                self.gather.drop_gathered(w, role)
            if isinstance(state, str) or state.kind.graph.trained:
                retaining.append(role)
        if micro.reduce:
            self._finalize(w, reduced, retaining, micro)
            if last is not None:
                self.reduce.drop_input(w, last)

    @property
    def _gathered_for_nothing(self) -> Unit | None:
        """What the last unit of backward gathered ahead although no backward comes to it."""
        wrapped = [unit for unit in self._units if unit.kind.wrapped]
        reached = (i for i, unit in enumerate(wrapped) if unit.kind.graph.has_backward)
        index = next(reached, len(wrapped) if self.root else 0)
        if not index or not self.setting.gathers or not self.reshards(wrapped[index - 1].kind):
            return None
        return wrapped[index - 1]

    def _waited(
        self, w: BlockWriter, state: Unit | str, pending: str | None, micro: MicroStep
    ) -> str | None:
        """The ``post_backward`` of a group that waited for the final callback.

        Returns its role where it reduces, else None: nothing is in flight after it.
        """
        group = self.root if isinstance(state, str) else self.group(state.kind, state.label)
        assert group is not None
        fqn = group.fqn if isinstance(state, str) else state.fqn
        w.mark(f"post_bwd.begin:{fqn}")
        slots = []
        if not self.adds_in_place(micro):
            word = self.waits_as(micro)
            slots = [w.shared(m.home, f"{word}.{m.name}") for m in group.trained.members]
        self._post_backward(w, group, slots, micro, pending=pending, waited=state)
        w.mark(f"post_bwd.end:{fqn}")
        return group.role if group.trained.members else None

    def _finalize(
        self, w: BlockWriter, last: str | None, roles: Sequence[str], micro: MicroStep
    ) -> None:
        """``finalize_backward``: wait for the last reduction; what HSDP retained goes."""
        if last is not None:
            w.wait(w.event(last, "post_reduced"), Stream.COMPUTE)
        if self.reduce.retained(micro):
            w.free_all(w.shared(role, "reduced") for role in roles)

    def zero_grad(self, w: BlockWriter, group: Group) -> None:
        """The group's gradients are views of one block: it goes when all of them are None."""
        if group.trained.members and not self.setting.offload and self.in_backward is None:
            w.free(w.shared(group.role, "gradients"))
