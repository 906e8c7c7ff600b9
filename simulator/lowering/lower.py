"""Lowering: (model, plan) -> program. The order of a training step.

A step: take a batch; forward unit by unit; loss; backward; clip; optimizer; zero_grad. The
framework writes its hooks into the same blocks and never owns this loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simulator.errors import UnsupportedError
from simulator.lowering.assembly import Assembly, Place, Roles
from simulator.lowering.bodies import Bodies, kept_borrows
from simulator.lowering.clipping import write_clipping
from simulator.lowering.framework import FRAMEWORKS, MicroStep
from simulator.lowering.framework.micro import micro_steps
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.optimizer.writing import STATE
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.shards import Shard, shards_of
from simulator.lowering.stepping import Stepping
from simulator.lowering.units import LOSS, Kind, Unit, units_of, wrapped_sorts
from simulator.lowering.writer import BlockWriter
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES
from simulator.model.float8 import GATHERED, LINEARS
from simulator.plan.plan import FP8_GATHERED, Plan
from simulator.program.program import Phase, Program

STEP = "step"
"""Label of what belongs to the training loop and to no unit."""

ROOT = "root"
"""Label of the group that the framework's root module keeps."""

RESIDENT = frozenset({"shard", "buffer", "scale", STATE})
"""First words of registers that live as long as the job: shards, buffers, optimizer states."""


def decoder_of(config: ModelConfig, plan: Plan) -> Decoder:
    """The model's graphs for the plan's micro-batch."""
    training = plan.training
    shape = Shape(
        batch=training.micro_batch,
        seq=training.seq_len,
        dtype=training.precision.compute,
        autocast=training.precision.autocast,
        tuning=training.fine_tuning,
        float8=_float8(training.precision.fp8),
    )
    return FAMILIES[config.family](config, shape)


def _float8(fp8: str | None) -> str:
    if fp8 is None:
        return ""
    return GATHERED if fp8 == FP8_GATHERED else LINEARS


def lower(decoder: Decoder, plan: Plan, steps: int = 2) -> Program:
    """What one rank issues over ``steps`` steps. All ranks of FSDP2 run the same program.

    Raises:
        UnsupportedError: a plan that this version does not lower.
    """
    return _Lowering(decoder, plan).program(steps)


class _Lowering:
    def __init__(self, decoder: Decoder, plan: Plan) -> None:
        training, parallelism = plan.training, plan.parallelism
        _refuse_unknown(decoder, plan)
        self.plan = plan
        self.units = units_of(
            decoder,
            training,
            wrap=parallelism.fsdp.wrap,
            last_apart=not parallelism.fsdp.reshard_last_block,
        )
        self.wrapped = [unit for unit in self.units if unit.kind.wrapped]
        self.framework = FRAMEWORKS[parallelism.framework](plan, self.units)
        policy = plan_recompute(decoder.loss, "none")
        loss = Kind(name=LOSS, fqn=LOSS, graph=decoder.loss, recompute=policy, wrapped=False)
        self.bodies = Bodies(decoder, training, self.framework, loss, self.units)
        self.returned = self._returned()
        self.labels = {unit.label: unit for unit in self.units}
        self.a = Assembly()
        choice, precision = training.optimizer_choice, training.trained_precision
        optimizer = OPTIMIZERS[choice](training.optimizer, precision, training.hyper)
        self.stepping = Stepping(self.a, optimizer, self.units, self.shards)

    def _returned(self) -> list[frozenset[str]]:
        """By unit, the lent values that no unit before it keeps: its backward lets them go."""
        found, seen = [], frozenset[str]()
        for unit in self.units:
            found.append(kept_borrows(unit.kind) - seen)
            seen |= found[-1]
        return found

    def program(self, steps: int) -> Program:
        self._init()
        for step in range(steps):
            for number, micro in enumerate(micro_steps(self.plan)):
                self._forward(Place(Phase.FORWARD, step, number), micro)
                self._backward(Place(Phase.BACKWARD, step, number), micro)
            self._optimize(Place(Phase.OPTIMIZER, step))
        return self.a.program(resident=RESIDENT)

    def _init(self) -> None:
        place = Place(Phase.INIT, 0)
        self._over_units(place, "init", lambda kind: partial(self.framework.init, kind=kind))
        self.a.call(("buffers",), self.bodies.buffers, {"own": STEP}, place)

    def _forward(self, place: Place, micro: MicroStep) -> None:
        roles: Roles = {"own": STEP, "root": ROOT, **self.labels}
        self.a.call(("batch", micro), partial(self.bodies.batch, micro=micro), roles, place)
        behind: Unit | str | None = ROOT if self.framework.root else None
        previous: Unit | None = None
        early: set[int] = set()
        for index, unit in enumerate(self.units):
            ahead = self.framework.gathered_ahead(index)
            self._forward_unit(place, micro, unit, previous, behind, ahead, index in early)
            early.update(ahead)
            previous = unit
            if unit.kind.wrapped:
                behind = unit
        cached = [unit for unit in self.units if unit.kind.recompute.until_loss]
        roles = _roles(own=LOSS, previous=self.units[-1], behind=behind)
        roles |= {unit.label: unit for unit in cached}
        write = partial(self.bodies.loss_forward, micro=micro, units=cached)
        self.a.call(("forward", LOSS, micro), write, roles, place)

    def _forward_unit(
        self,
        place: Place,
        micro: MicroStep,
        unit: Unit,
        previous: Unit | None,
        behind: Unit | str | None,
        ahead: Sequence[int],
        gathered: bool,
    ) -> None:
        targets = [self.units[index] for index in ahead]
        kinds = [target.kind for target in targets]
        kind = behind.kind if isinstance(behind, Unit) else unit.kind if behind else None
        names = (_name(behind), *(target.name for target in kinds))
        roles = _roles(own=unit, previous=previous, behind=behind, embed=self.units[0])
        roles |= {f"ahead.{number}": target for number, target in enumerate(targets)}
        lent_input = previous is self.units[0] and self.bodies.lent_output is not None
        self.a.call(
            ("forward", unit.kind.name, "after", *names, gathered, lent_input, micro),
            partial(
                self.bodies.forward,
                kind=unit.kind,
                behind=kind,
                ahead=kinds,
                micro=micro,
                gathered=gathered,
                lent_input=lent_input,
            ),
            roles,
            place,
        )

    def _backward(self, place: Place, micro: MicroStep) -> None:
        left = self.wrapped[::-1]
        first_ahead = left[0] if self.framework.root and left else None
        self.a.call(
            ("backward", LOSS, _name(first_ahead)),
            partial(self.bodies.loss_backward, ahead=_kind(first_ahead)),
            _roles(own=LOSS, previous=self.units[-1], ahead=first_ahead),
            place,
        )
        pending: Unit | None = None
        for index in reversed(range(len(self.units))):
            unit = self.units[index]
            if unit.kind.wrapped:
                left = left[1:]
            if not unit.kind.graph.has_backward:
                continue
            self._backward_unit(place, micro, index, left[0] if left else None, pending)
            if unit.kind.wrapped and micro.reduce and not self.framework.deferred(unit.kind):
                pending = unit if unit.kind.graph.trained else None
        self.a.call(
            ("backward", "end", micro, _name(pending)),
            partial(self.bodies.end_backward, micro=micro, pending=pending is not None),
            {**self.labels, **_roles(own=STEP, loss=LOSS, root=ROOT, pending=pending)},
            place,
        )

    def _backward_unit(
        self,
        place: Place,
        micro: MicroStep,
        index: int,
        ahead: Unit | None,
        pending: Unit | None,
    ) -> None:
        unit = self.units[index]
        first = not self.framework.root and unit is self.wrapped[-1]
        previous = self.units[index - 1] if index else None
        names = ("ahead", _name(ahead), "pending", _name(pending))
        returns = self.returned[index]
        self.a.call(
            ("backward", unit.kind.name, *names, first, returns, micro),
            partial(
                self.bodies.backward,
                kind=unit.kind,
                ahead=_kind(ahead),
                pending=_kind(pending),
                micro=micro,
                first=first,
                returns=returns,
            ),
            _roles(own=unit, previous=previous, ahead=ahead, pending=pending, embed=self.units[0]),
            place,
        )

    def _optimize(self, place: Place) -> None:
        if not self.plan.offload_parameters:
            self._step(place)
        self._mark(place, "opt_done")
        for unit in self.wrapped:
            if not unit.kind.graph.trained:
                continue
            write = partial(self.framework.zero_grad, kind=unit.kind)
            self.a.call(("zero_grad", unit.kind.graph.name), write, {"own": unit}, place)
        if self.framework.root:
            write = partial(self.framework.zero_grad, kind=None)
            self.a.call(("zero_grad", ROOT), write, {"root": ROOT}, place)
        self._mark(place, "zero_grad")

    def _step(self, place: Place) -> None:
        if self.plan.training.clip_grad_norm is not None:
            self.a.call(("clip",), self._write_clipping, {"own": STEP}, place)
        self.stepping.step(place)

    def _over_units(
        self, place: Place, name: str, bind: Callable[[Kind], Callable[[BlockWriter], None]]
    ) -> None:
        """Call a block of each unit in parameter order; units of one graph share it."""
        for unit in self.units:
            self.a.call((name, unit.kind.graph.name), bind(unit.kind), {"own": unit}, place)

    def _mark(self, place: Place, name: str) -> None:
        self.a.call(("mark", name), lambda w: w.mark(name), {"own": STEP}, place)

    def _write_clipping(self, w: BlockWriter) -> None:
        shards = [shard for unit in self.units for shard in self.shards(unit.kind)]
        size = self.plan.training.trained_precision.gradients.itemsize
        total = size * sum(shard.numel for shard in shards)
        write_clipping(w, len(shards), total, self.plan.parallelism.dp_shard)

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """A unit's local parameters that are trained."""
        shards = shards_of(kind.graph, self.plan.parallelism.dp_shard)
        return tuple(shard for shard in shards if shard.weight.trainable)


def _refuse_unknown(decoder: Decoder, plan: Plan) -> None:
    training, parallelism = plan.training, plan.parallelism
    choice = training.optimizer_choice
    for what, asked, known in (
        ("framework", parallelism.framework, FRAMEWORKS),
        ("optimizer", choice, OPTIMIZERS),
    ):
        if asked not in known:
            shown = asked if isinstance(asked, str) else " ".join(asked)
            raise UnsupportedError(f"{what} {shown!r} is not yet supported")
    apart = wrapped_sorts(parallelism.fsdp.wrap, decoder) & {"embedding", "head"}
    if apart and any(weight.tied for weight in decoder.head.weights):
        raise UnsupportedError("tied embeddings cannot be in two FSDP groups: use wrap: block")
    if parallelism.world_size != parallelism.dp_shard * parallelism.dp_replicate:
        raise UnsupportedError("mesh axes other than dp_shard, dp_replicate are not yet supported")


def _roles(**roles: Unit | str | None) -> dict[str, Unit | str]:
    return {role: unit for role, unit in roles.items() if unit is not None}


def _name(unit: Unit | str | None) -> str | None:
    return unit.kind.name if isinstance(unit, Unit) else unit


def _kind(unit: Unit | None) -> Kind | None:
    return None if unit is None else unit.kind
