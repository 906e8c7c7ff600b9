"""A program as text: its blocks, each once, and the calls that bind them."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.kernels import Attention, Gemm, GroupedGemm, Kernel
from simulator.program.instructions import (
    Alloc,
    Collective,
    Free,
    HostWait,
    Instruction,
    Launch,
    Mark,
    Record,
    Wait,
)
from simulator.program.program import Block, Program


def show_program(program: Program) -> Iterator[str]:
    """Lines of text: every block's instructions, then one line a call."""
    count = sum(len(program.blocks[call.block].instructions) for call in program.calls)
    yield f"{len(program.blocks)} blocks, {len(program.calls)} calls, {count} instructions"
    for number, block in enumerate(program.blocks):
        yield ""
        yield f"block {number}: {block.name}"
        names = {**dict(enumerate(block.parameters))}
        for instruction in block.instructions:
            yield f"  {spell(instruction, block, names)}"
    yield ""
    for index, call in enumerate(program.calls):
        block = program.blocks[call.block]
        layer = "" if call.layer is None else f" layer {call.layer}"
        yield (
            f"call {index}: step {call.step} {call.phase.value} "
            f"block {call.block} ({block.name}){layer}"
        )


def spell(instruction: Instruction, block: Block, names: dict[int, str]) -> str:
    """One instruction as a line; fills ``names`` with what local slots hold."""
    if isinstance(instruction, Alloc):
        tensor = instruction.tensor
        names.setdefault(instruction.slot, tensor.name)
        return (
            f"alloc    {names[instruction.slot]}  {tensor.dtype.value}{list(tensor.shape)}  "
            f"{tensor.bytes:,} B  {tensor.category.value}  @{instruction.stream.value}"
        )
    if isinstance(instruction, Free):
        return f"free     {names.get(instruction.slot, instruction.slot)}"
    if isinstance(instruction, Launch):
        return f"launch   {_kernel(instruction.kernel)}  @{instruction.stream.value}"
    if isinstance(instruction, Collective):
        return (
            f"{instruction.kind}  {instruction.bytes:,} B over {instruction.group}  "
            f"@{instruction.stream.value}"
        )
    if isinstance(instruction, Mark):
        return f"mark     {instruction.name}"
    return f"{_WORDS[type(instruction)]} {_event(instruction, block)}"


_WORDS: dict[type, str] = {Record: "record  ", Wait: "wait    ", HostWait: "hostwait"}


def _event(instruction: Record | Wait | HostWait, block: Block) -> str:
    number = instruction.event
    shared = number < len(block.event_parameters)
    name = block.event_parameters[number] if shared else f"local {number}"
    where = "" if isinstance(instruction, HostWait) else f"  @{instruction.stream.value}"
    return f"event {name}{where}"


def _kernel(kernel: Kernel) -> str:
    if isinstance(kernel, Gemm):
        return f"{kernel.name}  gemm m={kernel.m} n={kernel.n} k={kernel.k}  {kernel.flops:,} FLOP"
    if isinstance(kernel, GroupedGemm):
        shapes = ", ".join(f"{p.batch} of m={p.m} n={p.n} k={p.k}" for p in kernel.parts)
        return f"{kernel.name}  grouped gemm {shapes}  {kernel.flops:,} FLOP"
    if isinstance(kernel, Attention):
        return (
            f"{kernel.name}  {kernel.kernel} attention b={kernel.batch} heads={kernel.heads} "
            f"s={kernel.seq_q} d={kernel.head_dim}  {kernel.flops:,} FLOP"
        )
    return f"{kernel.name}  {kernel.kind} reads {kernel.read:,} B, writes {kernel.written:,} B"
