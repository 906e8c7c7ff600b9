"""Lowering: (model, plan) -> program. The order of a training step.

A step: take a batch; forward unit by unit; loss; backward; clip; optimizer; zero_grad. The
framework writes its hooks into the same blocks and never owns this loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from simulator.fine_tuning import FineTuning
from simulator.lowering.assembly import Assembly, Place, Roles
from simulator.lowering.bodies import Bodies
from simulator.lowering.framework import FRAMEWORKS, VIEWS, MicroStep
from simulator.lowering.framework.hooks import Backward, Forward, Hook, nothing
from simulator.lowering.framework.micro import micro_steps
from simulator.lowering.loss_scaling import SCALER, LossScaling
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.optimizer.writing import STATE
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.refusals import refuse_unknown
from simulator.lowering.stepping import Stepping
from simulator.lowering.unit_bodies import kept_borrows, returned_by
from simulator.lowering.units import LOSS, PEFT, Kind, Unit, units_of, wrapped_sorts, wraps_blocks
from simulator.lowering.writer import BlockWriter
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES
from simulator.model.float8 import Float8
from simulator.model.loss_choice import LossChoice
from simulator.plan.plan import FP8_GATHERED, FP8_ROWWISE, Plan, Training
from simulator.program.program import Phase, Program

STEP = "step"
"""Label of what belongs to the training loop and to no unit."""

ROOT = "root"
"""Label of the group that the framework's root module keeps."""

RESIDENT = frozenset({"buffer", SCALER, STATE})
"""First words of registers that live as long as the job: buffers, optimizer states and what a
loss scaler keeps."""


LOOP = ("loop.0", "loop.1")
"""Labels of what the training loop's variable holds, by turns; the last forward's is the first."""


def decoder_of(config: ModelConfig, plan: Plan) -> Decoder:
    """The model's graphs for the plan's micro-batch."""
    training, framework = plan.training, plan.parallelism.framework
    mixed = training.precision.parameters is not training.precision.compute
    shape = Shape(
        batch=training.micro_batch,
        seq=training.seq_len,
        dtype=training.precision.compute,
        autocast=training.precision.autocast,
        tuning=_gathered(plan),
        float8=_float8(training),
        loss=LossChoice(
            name=training.loss,
            chunks=training.loss_chunks,
            upcasts=training.model_upcasts,
            sums_apart=training.fused_linear_sums_apart,
        ),
        mask=training.mask,
        mixed=mixed,
        casts=mixed and framework == "fsdp2" and wraps_blocks(plan.parallelism.fsdp.wrap),
        input_requires_grad=training.checkpoint_reentrant,
        flat=framework == "fsdp1" and plan.parallelism.fsdp.wrap != PEFT,
    )
    decoder = FAMILIES[config.family](config, shape)
    if training.loss == "chunked" and _calls_head_once(config, decoder, plan):
        cut = replace(shape, loss=replace(shape.loss, cuts_logits=True))
        return FAMILIES[config.family](config, cut)
    return decoder


def _calls_head_once(config: ModelConfig, decoder: Decoder, plan: Plan) -> bool:
    """torchtitan's decoder with norm and head in one unit, of one forward."""
    parallelism = plan.parallelism
    wrapped = wrapped_sorts(parallelism.fsdp.wrap, decoder)
    return config.style == "torchtitan" and parallelism.framework == "fsdp2" and "head" in wrapped


def _gathered(plan: Plan) -> FineTuning | None:
    """What is trained; FSDP1 gathers it in the compute dtype, whatever it is stored in.

    peft casts the adapters' input to the dtype that it sees, which is that of the shards where
    they are original parameters.
    """
    tuning, parallelism = plan.training.fine_tuning, plan.parallelism
    if tuning is None or tuning.adapters is None or parallelism.framework != "fsdp1":
        return tuning
    seen = tuning.adapters.dtype if parallelism.fsdp.use_orig_params else None
    return replace(tuning, adapters=replace(tuning.adapters, dtype=None, reads=seen))


def _float8(training: Training) -> Float8 | None:
    fp8 = training.precision.fp8
    if fp8 is None:
        return None
    return Float8(
        gathered=fp8 == FP8_GATHERED,
        rowwise=fp8 == FP8_ROWWISE,
        compiled=training.compile != "none",
    )


def lower(decoder: Decoder, plan: Plan, steps: int = 2) -> Program:
    """What one rank issues over ``steps`` steps. All ranks of FSDP2 run the same program.

    Raises:
        UnsupportedError: a plan that this version does not lower.
    """
    return _Lowering(decoder, plan, steps).program()


class _Lowering:
    def __init__(self, decoder: Decoder, plan: Plan, steps: int) -> None:
        training, parallelism = plan.training, plan.parallelism
        refuse_unknown(decoder, plan)
        self.plan, self.steps, self.part = plan, steps, decoder.loss_part
        if parallelism.framework in VIEWS:
            decoder = decoder.uncached()
        self.units = units_of(
            decoder,
            training,
            wrap=parallelism.fsdp.wrap,
            last_apart=not parallelism.fsdp.reshard_last_block,
        )
        self.framework = FRAMEWORKS[parallelism.framework](plan, self.units)
        policy = plan_recompute(decoder.loss, "none")
        loss = Kind(name=LOSS, fqn=LOSS, graph=decoder.loss, recompute=policy, wrapped=False)
        self.bodies = Bodies(decoder, training, loss, self.units)
        self.returned = self._returned()
        self.labels = {unit.label: unit for unit in self.units}
        self.a = Assembly()
        choice, precision = training.optimizer_choice, training.stepped_precision
        optimizer = OPTIMIZERS[choice](training.optimizer, precision, training.hyper)
        self.stepping = Stepping(self.a, optimizer, self.units, self.framework.shards)

    def _returned(self) -> list[frozenset[str]]:
        """By unit, the lent values that no unit before it keeps: its backward lets them go."""
        found, seen = [], frozenset[str]()
        for unit in self.units:
            found.append(kept_borrows(unit.kind) - seen)
            seen |= found[-1]
        return found

    def program(self) -> Program:
        self._init()
        for step in range(self.steps):
            for number, micro in enumerate(micro_steps(self.plan, first=step == 0)):
                self._forward(Place(Phase.FORWARD, step, number), micro)
                self._backward(Place(Phase.BACKWARD, step, number), micro)
            self._optimize(Place(Phase.OPTIMIZER, step))
        return self.a.program(resident=RESIDENT | self.framework.resident, kept=LOOP[0])

    def _init(self) -> None:
        place = Place(Phase.INIT, 0)
        self._over_units(place, "init", lambda kind: partial(self.framework.init, kind=kind))
        start = self.framework.start()
        self.a.call(("start",), start.write, {"own": STEP, **start.roles}, place)
        self.a.call(("buffers",), self.bodies.buffers, {"own": STEP}, place)

    def _forward(self, place: Place, micro: MicroStep) -> None:
        begin = self.framework.begin_forward(micro, place.step)
        roles: Roles = {"own": STEP, "root": ROOT, **self.labels, **begin.roles}
        self.a.call(("batch", *begin.key), partial(self.bodies.batch, hook=begin), roles, place)
        for index in range(len(self.units)):
            self._forward_unit(place, index, self.framework.forward(index, micro, place.step))
        end = self.framework.end_forward(micro, place.step)
        cached = [unit for unit in self.units if unit.kind.recompute.until_loss]
        roles = {"own": LOSS, "previous": self.units[-1], "embed": self.units[0], **end.roles}
        roles |= {unit.label: unit for unit in cached} | self._loop(place)
        left = self.framework.backward(len(self.units) - 1, micro, place.step).left
        replaces = self._keeps and place[1:] != (0, 0)
        write = partial(
            self.bodies.loss_forward, hook=end, units=cached, left=left, replaces=replaces
        )
        self.a.call(("forward", LOSS, *end.key, left, replaces), write, roles, place)

    @property
    def _keeps(self) -> bool:
        return self.part.graph.until_next is not None

    def _loop(self, place: Place) -> dict[str, Unit | str]:
        """What the training loop's variable holds: of this forward, and of the one before."""
        if not self._keeps:
            return {}
        left = (self.steps - place.step) * self.plan.training.grad_accum - place.micro_batch - 1
        return {"loop": LOOP[left % 2], "before": LOOP[1 - left % 2]}

    def _forward_unit(self, place: Place, index: int, hooks: Forward) -> None:
        unit = self.units[index]
        lent_input = index == 1 and self.bodies.lent_output is not None
        returned = returned_by(self.units[index - 1].kind) if index else ()
        write = partial(
            self.bodies.forward,
            kind=unit.kind,
            hooks=hooks,
            lent_input=lent_input,
            returned=returned,
        )
        self.a.call(
            ("forward", unit.kind.name, *hooks.key, lent_input, returned),
            write,
            {**self._roles(index), **self._loop(place), **hooks.roles},
            place,
        )

    def _backward(self, place: Place, micro: MicroStep) -> None:
        last = len(self.units) - 1
        returned = self._output_hooks()
        if self.part.projects:
            hooks = self.framework.backward(last, micro, place.step)
            self._projected_backward(place, returned, hooks)
        else:
            self._loss_backward(place, returned)
        for index in reversed(range(last if self.part.projects else last + 1)):
            if self.units[index].kind.graph.has_backward:
                root = self._in_head(returned) if index == last else Hook()
                hooks = self.framework.backward(index, micro, place.step)
                self._backward_unit(place, index, hooks, root)
        end = self.framework.end_backward(micro, place.step)
        self.a.call(
            ("backward", "end", *end.key),
            partial(self.bodies.end_backward, hook=end),
            {
                **{"own": STEP, "loss": LOSS, "root": ROOT, "embed": self.units[0]},
                **self.labels,
                **end.roles,
            },
            place,
        )

    def _output_hooks(self) -> dict[int, Hook]:
        """The root's hooks on what the model returned, by how many ops of the loss had run then.

        The last to be made has its gradient first.
        """
        inside = self.part.inside
        return {
            number: self.framework.begin_backward(first=number == inside)
            for number in self.part.returned
        }

    def _in_head(self, returned: Mapping[int, Hook]) -> Hook:
        """The root's hook on the logits where the head's own hook was registered before."""
        if 0 not in returned or not self.units[-1].kind.wrapped:
            return Hook()
        return self.framework.begin_backward(first=False)

    def _loss_backward(self, place: Place, returned: Mapping[int, Hook]) -> None:
        scales = self.plan.training.precision.loss_scaling
        first = scales and (place.step, place.micro_batch) == (0, 0)
        wrapped = self.units[-1].kind.wrapped
        hooks = {n: hook for n, hook in returned.items() if n or not wrapped}
        keys = [(number, *hook.key) for number, hook in hooks.items()]
        roles: dict[str, Unit | str] = {"own": LOSS, "previous": self.units[-1]}
        for hook in hooks.values():
            roles |= hook.roles
        self.a.call(
            ("backward", LOSS, *keys, first),
            partial(self.bodies.loss_backward, hooks=hooks, first=first),
            {**roles, **self._loop(place)},
            place,
        )

    def _projected_backward(
        self, place: Place, returned: Mapping[int, Hook], hooks: Backward
    ) -> None:
        last = len(self.units) - 1
        keys = [(number, *hook.key) for number, hook in returned.items()]
        roles = self._roles(last) | {"loss": LOSS}
        for hook in returned.values():
            roles |= hook.roles
        self.a.call(
            ("backward", "head", *keys, *hooks.key, self.returned[last]),
            partial(
                self.bodies.projected_backward,
                hooks=hooks,
                returned=returned,
                returns=self.returned[last],
            ),
            {**roles, **hooks.roles},
            place,
        )

    def _backward_unit(self, place: Place, index: int, hooks: Backward, root: Hook) -> None:
        unit, returns = self.units[index], self.returned[index]
        leaf = index == 1 and self.bodies.leaf
        write = partial(
            self.bodies.backward, kind=unit.kind, hooks=hooks, root=root, returns=returns, leaf=leaf
        )
        self.a.call(
            ("backward", unit.kind.name, *hooks.key, *root.key, returns, leaf),
            write,
            {**self._roles(index), **self._loop(place), **hooks.roles, **root.roles},
            place,
        )

    def _roles(self, index: int) -> dict[str, Unit | str]:
        """Who a unit's code always knows: itself, the one before it and the embedding's."""
        roles: dict[str, Unit | str] = {"own": self.units[index], "embed": self.units[0]}
        return {**roles, "previous": self.units[index - 1]} if index else roles

    def _optimize(self, place: Place) -> None:
        if not self.plan.offload_parameters:
            self._step(place)
        self._mark(place, "opt_done")
        self._over_units(
            place, "zero_grad", lambda kind: partial(self.framework.zero_grad, kind=kind)
        )
        self.a.call(("end_step",), self.framework.end_step, {"own": STEP, "root": ROOT}, place)
        self._mark(place, "zero_grad")

    def _step(self, place: Place) -> None:
        clips, scaling = self.plan.training.clip_grad_norm is not None, self._scaling()
        if scaling and clips:
            self.a.call(("unscale",), scaling.before_clipping, {"own": STEP}, place)
        if clips:
            key, write = ("clip", place.step == 0), partial(self._clip, step=place.step)
            self.a.call(key, write, {"own": STEP}, place)
        if scaling:
            self.a.call(("scaler", "step"), scaling.before_step, {"own": STEP}, place)
        if not self.plan.training.optimizer_in_backward:
            for round_ in self.framework.rounds():
                self._hooked(place, ("before_step", round_.name), round_.before)
                self.stepping.step(place, round_)
                self._hooked(place, ("after_step", round_.name), round_.after)
        if scaling:
            self.a.call(("scaler", "update"), scaling.after_step, {"own": STEP}, place)

    def _hooked(self, place: Place, key: tuple[str, ...], hook: Hook) -> None:
        """A hook of the framework's with nothing of ours in its block."""
        if hook.write is not nothing:
            self.a.call((*key, *hook.key), hook.write, {"own": STEP, **hook.roles}, place)

    def _scaling(self) -> LossScaling | None:
        training = self.plan.training
        if not training.precision.loss_scaling:
            return None
        shards = [shard for unit in self.units for shard in self.framework.shards(unit.kind)]
        size = training.trained_precision.gradients.itemsize
        return LossScaling(
            gradient_bytes=size * sum(shard.numel for shard in shards),
            ranks=self.plan.parallelism.dp_shard,
            clips=training.clip_grad_norm is not None,
            fused=training.optimizer_choice[1] == "fused",
        )

    def _over_units(
        self, place: Place, name: str, bind: Callable[[Kind], Callable[[BlockWriter], None]]
    ) -> None:
        """Call a block of each unit in parameter order; units of one graph share it."""
        for unit in self.units:
            self.a.call((name, unit.kind.graph.name), bind(unit.kind), {"own": unit}, place)

    def _mark(self, place: Place, name: str) -> None:
        self.a.call(("mark", name), lambda w: w.mark(name), {"own": STEP}, place)

    def _clip(self, w: BlockWriter, step: int) -> None:
        shards = [shard for unit in self.units for shard in self.framework.shards(unit.kind)]
        self.framework.clip(w, shards, step)
