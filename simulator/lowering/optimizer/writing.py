"""Ops written into blocks: over all parameters call by call, or parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from simulator.kernels import Elementwise, Kernel
from simulator.lowering.optimizer.op import Op, Ops
from simulator.lowering.optimizer.tensors import MODULE
from simulator.lowering.shards import Shard
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Collective, Stream, Tensor

STATE = "state"
"""First word of the registers that hold states."""

Steps = Sequence[tuple[Shard, Ops]]
"""Parameters, each with its calls."""


def write_call(w: BlockWriter, ops: Iterable[tuple[Shard, Op]]) -> None:
    """One call over many parameters: what it makes for each, its kernel over all, what goes.

    What is gone after the call that makes it is made for one parameter at a time.
    """
    ops = list(ops)
    passing = [(shard, op) for shard, op in ops if op.makes and op.makes[0] in op.drops]
    for shard, op in passing:
        _write_one(w, shard, (op,), {}, Stream.COMPUTE)
    ops = [pair for pair in ops if pair not in passing]
    for shard, op in ops:
        if op.makes is not None:
            name, tensor = op.makes
            w.alloc(tensor, slot=w.shared("own", _register(op, name, shard)))
    for work in _together(op.work for _, op in ops):
        _launch(w, work, Stream.COMPUTE)
    for shard, op in ops:
        w.free_all(w.shared("own", f"local.{name}.{shard.weight.name}") for name in op.drops)


def write_loop(w: BlockWriter, steps: Steps, held: Iterable[str] = ()) -> None:
    """Parameter by parameter; ``held`` are variables that hold a local of an earlier unit."""
    variables = {name: w.shared(f"held.{name}", name) for name in held}
    for shard, ops in steps:
        _write_one(w, shard, ops, variables, Stream.COMPUTE)
    for name, slot in variables.items():
        if w.is_local(slot):
            w.promote(slot, "own", name)


def write_alone(w: BlockWriter, shard: Shard, ops: Ops, stream: Stream, role: str) -> None:
    """One parameter's step with nothing around it; its states are registers of ``role``."""
    variables: dict[str, int] = {}
    _write_one(w, shard, ops, variables, stream, role)
    w.free_all(variables.values())


def _write_one(
    w: BlockWriter,
    shard: Shard,
    ops: Ops,
    variables: dict[str, int],
    stream: Stream,
    role: str = "own",
) -> None:
    locals_: dict[str, int] = {}
    for op in ops:
        w.free_all(variables.pop(name) for name in op.unbinds if name in variables)
        if op.makes is not None:
            name, tensor = op.makes
            slot = w.shared(role, _register(op, name, shard)) if op.stays else None
            locals_[name] = w.alloc(tensor, stream, slot=slot)
        if op.work is not None:
            _launch(w, op.work, stream)
        w.free_all(locals_.pop(name) for name in op.drops)
        for variable, name in op.binds:
            before = variables.pop(variable, None)
            variables[variable] = locals_.pop(name)
            if before is not None:
                w.free(before)


def left_held(steps: Steps) -> Mapping[str, Tensor | None]:
    """What a loop's variables hold after it, None for nothing; those that it leaves are left out.

    >>> left_held([])
    {}
    """
    held: dict[str, Tensor | None] = {}
    for _, ops in steps:
        made: dict[str, Tensor] = {}
        for op in ops:
            held.update(dict.fromkeys(op.unbinds))
            if op.makes is not None:
                made[op.makes[0]] = op.makes[1]
            held.update({variable: made[name] for variable, name in op.binds})
    return held


def _register(op: Op, name: str, shard: Shard) -> str:
    return f"{STATE if op.stays else 'local'}.{name}.{shard.weight.name}"


def _launch(w: BlockWriter, work: Kernel | Collective, stream: Stream) -> None:
    if isinstance(work, Collective):
        w.collective(replace(work, stream=stream))
    else:
        w.launch(work, MODULE, stream)


def _together(works: Iterable[Kernel | Collective | None]) -> list[Kernel | Collective]:
    """Element-wise kernels of one call are one launch; others are one each."""
    found: list[Kernel | Collective] = []
    sums: dict[str, Elementwise] = {}
    for work in works:
        if isinstance(work, Elementwise):
            before = sums.get(work.name)
            read, written = (before.read, before.written) if before else (0, 0)
            sums[work.name] = replace(work, read=read + work.read, written=written + work.written)
        elif work is not None:
            found.append(work)
    return [*sums.values(), *found]
