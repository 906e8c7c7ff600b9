"""What an optimizer holds: for one parameter, and as a program of its steps alone."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.lowering.assembly import Assembly, Place
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.optimizer.op import Optimizer
from simulator.lowering.optimizer.writing import STATE
from simulator.lowering.shards import Shard, shards_of
from simulator.lowering.stepping import Stepping
from simulator.lowering.units import units_of
from simulator.lowering.writer import BlockWriter
from simulator.model.decoder import Decoder
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
    steps: int = 3,
) -> Program:
    """An optimizer's steps over a model's parameters, with nothing around them."""
    optimizer = OPTIMIZERS[choice](choice[0], precision, hyper or Hyper())
    units = units_of(decoder, make_plan().training)
    assembly = Assembly()
    stepping = Stepping(assembly, optimizer, units, lambda kind: shards_of(kind.graph, world))
    assembly.call(("nothing",), _nothing, {"own": "step"}, Place(Phase.INIT, 0))
    for step in range(steps):
        stepping.step(Place(Phase.OPTIMIZER, step))
    return assembly.program(resident={STATE})


def _nothing(w: BlockWriter) -> None:
    """Some optimizers allocate nothing, and a ledger of nothing has no peak."""
    tensor = Tensor(
        name="nothing", shape=(0,), dtype=DType.FP32, category=Category.BUFFERS, module="optimizer"
    )
    w.free(w.alloc(tensor))
