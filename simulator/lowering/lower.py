"""Lowering: (model, plan) -> program. Passes 4 and 5 stand here: the order of a training step.

A step: take a batch; forward unit by unit; loss; backward; clip; optimizer; zero_grad. The
framework writes its hooks into the same blocks and never owns this loop.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.lowering.assembly import Assembly
from simulator.lowering.autograd import Gradient, write_backward, write_forward
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
from simulator.program.instructions import Category, Stream, Tensor
from simulator.program.kernels import Elementwise
from simulator.program.program import Phase, Program

STEP = "step"


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
        if parallelism.framework not in FRAMEWORKS:
            raise UnsupportedError(f"framework {parallelism.framework!r} is not yet supported")
        self.decoder, self.plan = decoder, plan
        self.framework = FRAMEWORKS[parallelism.framework](plan)
        choice = (training.optimizer, training.optimizer_implementation)
        self.optimizer = OPTIMIZERS[choice](training.precision)
        self.units = units_of(
            decoder,
            training.activation_checkpointing,
            last_apart=not parallelism.fsdp.reshard_last_block,
        )
        self.loss = Kind(
            name=LOSS,
            fqn=LOSS,
            graph=decoder.loss,
            recompute=plan_recompute(decoder.loss, "none"),
        )
        self._shards: dict[str, tuple[Shard, ...]] = {}
        self.a = Assembly()

    def program(self, steps: int) -> Program:
        self._init()
        for step in range(steps):
            self._forward(step)
            self._backward(step)
            self._optimize(step)
        return self.a.program(_is_resident)

    # -- before the first step

    def _init(self) -> None:
        for unit in self.units:
            self.a.call(
                ("init", unit.kind.graph.name),
                lambda w, kind=unit.kind: self.framework.init(w, kind),  # type: ignore[misc]
                {"own": unit},
                phase=Phase.INIT,
                step=0,
            )
        self.a.call(("buffers",), self._write_buffers, {"own": STEP}, phase=Phase.INIT, step=0)

    def _write_buffers(self, w: BlockWriter) -> None:
        for buffer in self.decoder.buffers:
            tensor = Tensor(
                name=buffer.name,
                shape=buffer.shape,
                dtype=buffer.dtype,
                category=Category.BUFFERS,
                module="embed",
            )
            w.alloc(tensor, slot=w.shared("own", f"buffer.{buffer.name}"))
        w.mark("start")

    # -- forward

    def _forward(self, step: int) -> None:
        forward = {"phase": Phase.FORWARD, "step": step}
        self.a.call(("batch",), self._write_batch, {"own": STEP}, **forward)  # type: ignore[arg-type]
        previous: Unit | None = None
        for unit in self.units:
            before = previous.kind if previous else None
            roles = {"own": unit} if previous is None else {"own": unit, "previous": previous}
            self.a.call(
                ("forward", unit.kind.name, "after", before.name if before else None),
                lambda w, kind=unit.kind, before=before: self._write_forward(w, kind, before),  # type: ignore[misc]
                roles,
                **forward,  # type: ignore[arg-type]
            )
            previous = unit
        assert previous is not None
        self.a.call(
            ("forward", LOSS),
            self._write_loss_forward,
            {"own": LOSS, "previous": previous},
            **forward,  # type: ignore[arg-type]
        )

    def _write_batch(self, w: BlockWriter) -> None:
        training = self.plan.training
        for name in ("tokens", "labels"):
            tensor = Tensor(
                name=name,
                shape=(training.micro_batch, training.seq_len),
                dtype=DType.INT64,
                category=Category.INPUTS,
                module="embed",
            )
            w.alloc(tensor, slot=w.shared("own", name))
        self.framework.begin_forward(w)

    def _write_forward(self, w: BlockWriter, kind: Kind, previous: Kind | None) -> None:
        self.framework.pre_forward(w, kind, previous)
        graph, slots = kind.graph, self._kept_slots(w, kind)
        start = 0
        for index in range(1, len(graph.ops)):
            if kind.name == "head" and graph.ops[index].module != graph.ops[start].module:
                write_forward(w, graph, kind.recompute, slots, start, index)
                self.framework.between_modules(w, kind)
                start = index
        write_forward(w, graph, kind.recompute, slots, start, len(graph.ops))
        self.framework.post_forward(w, kind)
        if graph.input is not None and graph.input not in kind.recompute.kept:
            w.free(slots[graph.input])
        if kind.name == "head":
            self.framework.end_forward(w)

    def _kept_slots(self, w: BlockWriter, kind: Kind) -> dict[int, int]:
        """Shared slots of a graph's input, its output and what forward keeps."""
        graph = kind.graph
        slots = {
            value: w.shared("own", f"kept.{graph.values[value].name}")
            for value in sorted(kind.recompute.kept)
            if value != graph.input
        }
        slots[graph.output] = w.shared("own", "out")
        if graph.input is not None:
            slots[graph.input] = w.shared("previous", "out")
        return slots

    def _write_loss_forward(self, w: BlockWriter) -> None:
        graph, slots = self.loss.graph, self._kept_slots(w, self.loss)
        write_forward(w, graph, self.loss.recompute, slots, 0, len(graph.ops))
        assert graph.input is not None
        if graph.input not in self.loss.recompute.kept:
            w.free(slots[graph.input])
        w.mark("fwd_done")

    # -- backward

    def _backward(self, step: int) -> None:
        backward = {"phase": Phase.BACKWARD, "step": step}
        order = self.units[::-1]
        self.a.call(
            ("backward", LOSS),
            self._write_loss_backward,
            {"own": LOSS, "previous": order[0]},
            **backward,  # type: ignore[arg-type]
        )
        for index, unit in enumerate(order):
            pending = order[index - 1] if index else None
            ahead = order[index + 1] if index + 1 < len(order) else None
            roles = {"own": unit}
            if ahead is not None:
                roles |= {"next": ahead, "previous": ahead}
            if pending is not None:
                roles["pending"] = pending
            kinds = (unit.kind, ahead.kind if ahead else None, pending.kind if pending else None)
            self.a.call(
                ("backward", *(kind.name if kind else None for kind in kinds)),
                lambda w, kinds=kinds: self._write_backward(w, *kinds),  # type: ignore[misc]
                roles,
                **backward,  # type: ignore[arg-type]
            )
        self.a.call(
            ("backward", "end"),
            lambda w: self._write_end_backward(w, order[-1].kind),
            {"own": STEP, "loss": LOSS, "pending": order[-1]},
            **backward,  # type: ignore[arg-type]
        )

    def _write_loss_backward(self, w: BlockWriter) -> None:
        """``loss.backward()`` starts from a gradient of one, which lives until it returns."""
        graph = self.loss.graph
        root = Tensor(
            name="loss.grad",
            shape=(1,),
            dtype=DType.FP32,
            category=Category.TEMPORARIES,
            module=LOSS,
        )
        slot = w.alloc(root, slot=w.shared("own", "grad"))
        w.launch(Elementwise(name="ones_like", kind="copy", read=0, written=4), LOSS)
        slots = self._kept_slots(w, self.loss)
        incoming = Gradient(slot, holders=2)
        _, out = write_backward(w, graph, self.loss.recompute, slots, incoming)
        assert out is not None
        w.promote(out, "previous", "grad")

    def _write_backward(
        self, w: BlockWriter, kind: Kind, ahead: Kind | None, pending: Kind | None
    ) -> None:
        self.framework.pre_backward(w, kind, ahead, first=pending is None)
        slots = {
            value: slot
            for value, slot in self._kept_slots(w, kind).items()
            if value in kind.recompute.kept
        }
        incoming = Gradient(w.shared("own", "grad"))
        gradients, out = write_backward(w, kind.graph, kind.recompute, slots, incoming)
        if out is not None:
            w.promote(out, "previous", "grad")
        self.framework.post_backward(w, kind, gradients, pending)

    def _write_end_backward(self, w: BlockWriter, pending: Kind) -> None:
        self.framework.end_backward(w, pending)
        w.free_all((w.shared("loss", "grad"), w.shared("loss", "out")))
        w.mark("bwd_done")
        w.free_all((w.shared("own", "tokens"), w.shared("own", "labels")))

    # -- optimizer

    def _optimize(self, step: int) -> None:
        if self.plan.training.clip_grad_norm is not None:
            self.a.call(
                ("clip",), self._write_clipping, {"own": STEP}, phase=Phase.OPTIMIZER, step=step
            )
        if step == 0:
            self._over_units("states", self.optimizer.states, step)
        for name in self.optimizer.passes():
            self._over_units(
                f"optimizer {name}",
                lambda w, shards, name=name: self.optimizer.run_pass(w, name, shards),  # type: ignore[misc]
                step,
            )
        self._mark("opt_done", step)
        for unit in self.units:
            self.a.call(
                ("zero_grad", unit.kind.graph.name),
                lambda w, kind=unit.kind: self.framework.zero_grad(w, kind),  # type: ignore[misc]
                {"own": unit},
                phase=Phase.OPTIMIZER,
                step=step,
            )
        self._mark("zero_grad", step)

    def _over_units(self, name: str, write, step: int) -> None:  # type: ignore[no-untyped-def]
        for unit in self.units:
            self.a.call(
                (name, unit.kind.graph.name),
                lambda w, unit=unit: write(w, self.shards(unit.kind)),  # type: ignore[misc]
                {"own": unit},
                phase=Phase.OPTIMIZER,
                step=step,
            )

    def _mark(self, name: str, step: int) -> None:
        self.a.call(
            ("mark", name), lambda w: w.mark(name), {"own": STEP}, phase=Phase.OPTIMIZER, step=step
        )

    def _write_clipping(self, w: BlockWriter) -> None:
        shards = [shard for unit in self.units for shard in self.shards(unit.kind)]
        size = self.plan.training.precision.gradients.itemsize
        write_clipping(
            w, len(shards), size * sum(s.numel for s in shards), self.plan.parallelism.dp_shard
        )

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """A unit's local parameters."""
        if kind.graph.name not in self._shards:
            self._shards[kind.graph.name] = shards_of(kind.graph, self.plan.parallelism.dp_shard)
        return self._shards[kind.graph.name]


def _is_resident(register: str) -> bool:
    """Shards, optimizer states and buffers live as long as the job."""
    name = register.split("/", 1)[1]
    return name.split(".", 1)[0] in {"shard", "buffer", "step", "exp_avg", "exp_avg_sq"}
