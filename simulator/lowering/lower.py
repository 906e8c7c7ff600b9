"""Lowering: (model, plan) -> program. The order of a training step.

A step: take a batch; forward unit by unit; loss; backward; clip; optimizer; zero_grad. The
framework writes its hooks into the same blocks and never owns this loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simulator.errors import UnsupportedError
from simulator.lowering.assembly import Assembly, Place, Roles
from simulator.lowering.bodies import Bodies
from simulator.lowering.clipping import write_clipping
from simulator.lowering.framework import FRAMEWORKS
from simulator.lowering.framework.shards import Shard, shards_of
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.units import LOSS, Kind, Unit, units_of
from simulator.lowering.writer import BlockWriter
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES
from simulator.plan.plan import Plan
from simulator.program.program import Phase, Program

STEP = "step"
"""Label of what belongs to the training loop and to no unit."""

RESIDENT = frozenset({"shard", "buffer", "step", "exp_avg", "exp_avg_sq"})
"""First words of registers that live as long as the job: shards, buffers, optimizer states."""


def decoder_of(config: ModelConfig, plan: Plan) -> Decoder:
    """The model's graphs for the plan's micro-batch."""
    training = plan.training
    shape = Shape(
        batch=training.micro_batch, seq=training.seq_len, dtype=training.precision.compute
    )
    return FAMILIES[config.family](config, shape)


def lower(decoder: Decoder, plan: Plan, steps: int = 2) -> Program:
    """What one rank issues over ``steps`` steps. All ranks of FSDP2 run the same program.

    Raises:
        UnsupportedError: a plan that this version does not lower.
    """
    return _Lowering(decoder, plan).program(steps)


class _Lowering:
    def __init__(self, decoder: Decoder, plan: Plan) -> None:
        training, parallelism = plan.training, plan.parallelism
        _refuse_unknown(plan)
        self.plan = plan
        self.framework = FRAMEWORKS[parallelism.framework](plan)
        choice = (training.optimizer, training.optimizer_implementation)
        self.optimizer = OPTIMIZERS[choice](training.precision)
        self.units = units_of(
            decoder,
            training.activation_checkpointing,
            last_apart=not parallelism.fsdp.reshard_last_block,
        )
        policy = plan_recompute(decoder.loss, "none")
        loss = Kind(name=LOSS, fqn=LOSS, graph=decoder.loss, recompute=policy)
        self.bodies = Bodies(decoder, training, self.framework, loss)
        self.a = Assembly()

    def program(self, steps: int) -> Program:
        self._init()
        for step in range(steps):
            self._forward(Place(Phase.FORWARD, step))
            self._backward(Place(Phase.BACKWARD, step))
            self._optimize(Place(Phase.OPTIMIZER, step))
        return self.a.program(resident=RESIDENT)

    def _init(self) -> None:
        place = Place(Phase.INIT, 0)
        self._over_units(
            place, "init", lambda kind: partial(self.framework.init, kind=kind), self.units
        )
        self.a.call(("buffers",), self.bodies.buffers, {"own": STEP}, place)

    def _forward(self, place: Place) -> None:
        self.a.call(("batch",), self.bodies.batch, {"own": STEP}, place)
        previous: Unit | None = None
        for unit in self.units:
            before = None if previous is None else previous.kind
            self.a.call(
                ("forward", unit.kind.name, "after", _name(before)),
                partial(self.bodies.forward, kind=unit.kind, previous=before),
                _roles(own=unit, previous=previous),
                place,
            )
            previous = unit
        roles: Roles = {"own": LOSS, "previous": self.units[-1]}
        self.a.call(("forward", LOSS), self.bodies.loss_forward, roles, place)

    def _backward(self, place: Place) -> None:
        order = self.units[::-1]
        roles: Roles = {"own": LOSS, "previous": order[0]}
        self.a.call(("backward", LOSS), self.bodies.loss_backward, roles, place)
        for index, unit in enumerate(order):
            pending = order[index - 1] if index else None
            ahead = order[index + 1] if index + 1 < len(order) else None
            after = None if ahead is None else ahead.kind
            before = None if pending is None else pending.kind
            self.a.call(
                ("backward", unit.kind.name, "ahead", _name(after), "pending", _name(before)),
                partial(self.bodies.backward, kind=unit.kind, ahead=after, pending=before),
                _roles(own=unit, next=ahead, previous=ahead, pending=pending),
                place,
            )
        self.a.call(
            ("backward", "end"),
            partial(self.bodies.end_backward, pending=order[-1].kind),
            {"own": STEP, "loss": LOSS, "pending": order[-1]},
            place,
        )

    def _optimize(self, place: Place) -> None:
        if self.plan.training.clip_grad_norm is not None:
            self.a.call(("clip",), self._write_clipping, {"own": STEP}, place)
        if place.step == 0:
            self._over_shards(place, "states", self.optimizer.states)
        for name in self.optimizer.passes():
            self._over_shards(place, f"optimizer {name}", partial(self._run_pass, name=name))
        self._mark(place, "opt_done")
        self._over_units(
            place,
            "zero_grad",
            lambda kind: partial(self.framework.zero_grad, kind=kind),
            self.units,
        )
        self._mark(place, "zero_grad")

    def _run_pass(self, w: BlockWriter, shards: Sequence[Shard], name: str) -> None:
        self.optimizer.run_pass(w, name, shards)

    def _over_shards(
        self, place: Place, name: str, write: Callable[[BlockWriter, Sequence[Shard]], None]
    ) -> None:
        def bind(kind: Kind) -> Callable[[BlockWriter], None]:
            return lambda w: write(w, self.shards(kind))

        self._over_units(place, name, bind, self.units)

    def _over_units(
        self,
        place: Place,
        name: str,
        bind: Callable[[Kind], Callable[[BlockWriter], None]],
        units: Sequence[Unit],
    ) -> None:
        """Call a block of each unit in parameter order; units of one graph share it."""
        for unit in units:
            self.a.call((name, unit.kind.graph.name), bind(unit.kind), {"own": unit}, place)

    def _mark(self, place: Place, name: str) -> None:
        self.a.call(("mark", name), lambda w: w.mark(name), {"own": STEP}, place)

    def _write_clipping(self, w: BlockWriter) -> None:
        shards = [shard for unit in self.units for shard in self.shards(unit.kind)]
        size = self.plan.training.precision.gradients.itemsize
        total = size * sum(shard.numel for shard in shards)
        write_clipping(w, len(shards), total, self.plan.parallelism.dp_shard)

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """A unit's local parameters."""
        return shards_of(kind.graph, self.plan.parallelism.dp_shard)


def _refuse_unknown(plan: Plan) -> None:
    training, parallelism = plan.training, plan.parallelism
    choice = (training.optimizer, training.optimizer_implementation)
    for what, asked, known in (
        ("framework", parallelism.framework, FRAMEWORKS),
        ("optimizer", choice, OPTIMIZERS),
    ):
        if asked not in known:
            shown = asked if isinstance(asked, str) else " ".join(asked)
            raise UnsupportedError(f"{what} {shown!r} is not yet supported")
    if parallelism.world_size != parallelism.dp_shard:
        raise UnsupportedError("mesh axes other than dp_shard are not yet supported")
    if training.grad_accum != 1:
        raise UnsupportedError("gradient accumulation is not yet supported")


def _roles(**units: Unit | None) -> dict[str, Unit | str]:
    return {role: unit for role, unit in units.items() if unit is not None}


def _name(kind: Kind | None) -> str | None:
    return None if kind is None else kind.name
