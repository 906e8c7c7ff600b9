"""What an optimizer holds: for one parameter, and as a program of its steps alone."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.lowering.assembly import Assembly, Place
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.optimizer.op import Optimizer
from simulator.lowering.optimizer.writing import STATE
from simulator.lowering.recompute import plan_recompute
from simulator.lowering.shards import Shard, shards_of
from simulator.lowering.stepping import Stepping
from simulator.lowering.units import Kind, Unit, units_of
from simulator.lowering.writer import BlockWriter
from simulator.model.decoder import Decoder
from simulator.model.graph import Graph, Weight
from simulator.plan.plan import Hyper, Precision
from simulator.program.instructions import Category, Tensor
from simulator.program.program import Phase, Program
from tests.strategies import make_plan


def states_of(optimizer: Optimizer, shard: Shard) -> int:
    """Bytes that the first step allocates for one parameter and that stay."""
    group = next(group for group in optimizer if group.takes(shard))
    ops = (*group.states(shard), *group.step(shard, True))
    return sum(op.makes[1].bytes for op in ops if op.makes and op.stays)


def steps_of(
    choice: tuple[str, str],
    decoder: Decoder,
    precision: Precision,
    hyper: Hyper | None = None,
    world: int = 1,
) -> Program:
    """Three steps of an optimizer over a model's parameters, with nothing around them."""
    units = units_of(decoder, make_plan().training)
    return _steps(choice, units, precision, hyper or Hyper(), world)


def steps_over(
    choice: tuple[str, str],
    shapes: Sequence[tuple[int, ...]],
    precision: Precision,
    hyper: Hyper,
) -> Program:
    """The same over parameters of a layer by their shapes."""
    weights = tuple(
        Weight(name=f"p{number}", shape=shape, module="layers.*")
        for number, shape in enumerate(shapes)
    )
    graph = Graph(name="all", values=(), ops=(), weights=weights, input=None, output=0)
    recompute = plan_recompute(graph, "none")
    kind = Kind(name="block", fqn="all", graph=graph, recompute=recompute, wrapped=True)
    return _steps(choice, (Unit(kind=kind, label="all"),), precision, hyper, 1)


def _steps(
    choice: tuple[str, str],
    units: Sequence[Unit],
    precision: Precision,
    hyper: Hyper,
    world: int,
) -> Program:
    optimizer = OPTIMIZERS[choice](choice[0], precision, hyper)
    assembly = Assembly()
    stepping = Stepping(assembly, optimizer, units, lambda kind: shards_of(kind.graph, world))
    assembly.call(("nothing",), _nothing, {"own": "step"}, Place(Phase.INIT, 0))
    for step in range(3):
        stepping.step(Place(Phase.OPTIMIZER, step))
    return assembly.program(resident={STATE})


def _nothing(w: BlockWriter) -> None:
    """Some optimizers allocate nothing, and a ledger of nothing has no peak."""
    tensor = Tensor(
        name="nothing", shape=(0,), dtype=DType.FP32, category=Category.BUFFERS, module="optimizer"
    )
    w.free(w.alloc(tensor))
