"""Each rule of a program, broken on purpose."""

from __future__ import annotations

import pytest

from simulator.dtypes import DType
from simulator.errors import ProgramError
from simulator.program.instructions import (
    Alloc,
    Category,
    Free,
    Instruction,
    Record,
    Stream,
    Tensor,
    Wait,
    rounded,
)
from simulator.program.program import Block, Call, Phase, Program
from simulator.program.show import show_program
from simulator.program.verify import verify

TENSOR = Tensor(
    name="t", shape=(3, 5), dtype=DType.BF16, category=Category.ACTIVATIONS, module="layers.*.mlp"
)
LOCAL = 99


def program(
    *instructions: Instruction, parameters: tuple[str, ...] = ("own/t",), resident: bool = False
) -> Program:
    block = Block(name="b", instructions=instructions, parameters=parameters)
    call = Call(
        block=0, registers=(0,) * len(parameters), events=(), phase=Phase.FORWARD, step=0, layer=7
    )
    return Program(
        blocks=(block,),
        calls=(call,),
        registers=("layers.7/t",),
        events=(),
        resident=frozenset({0} if resident else ()),
    )


ALLOC, FREE = Alloc(0, TENSOR, Stream.COMPUTE), Free(0)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (program(ALLOC), "neither freed nor resident: layers.7/t"),
        (program(ALLOC, ALLOC, FREE), "allocates t over t"),
        (program(FREE), "frees layers.7/t, which holds nothing"),
        (program(ALLOC, FREE, FREE), "frees layers.7/t, which holds nothing"),
        (program(ALLOC, FREE, resident=True), "resident tensors are gone: layers.7/t"),
        (program(Alloc(LOCAL, TENSOR, Stream.COMPUTE)), "leaks local tensors: t"),
        (program(Free(LOCAL)), "frees local slot 99, which holds nothing"),
        (program(Wait(LOCAL, Stream.COMPUTE)), "waits for local event 99"),
        (program(parameters=()), None),
    ],
)
def test_each_rule(broken: Program, says: str | None) -> None:
    if says is None:
        verify(broken)
        return
    with pytest.raises(ProgramError, match=says):
        verify(broken)


def test_a_recorded_event_may_be_waited_for() -> None:
    verify(program(Record(LOCAL, Stream.COMPUTE), Wait(LOCAL, Stream.ALL_GATHER), parameters=()))


def test_a_call_must_bind_every_slot() -> None:
    good = program(ALLOC, FREE)
    call = Call(block=0, registers=(), events=(), phase=Phase.FORWARD, step=0)
    bad = Program(blocks=good.blocks, calls=(call,), registers=(), events=())
    with pytest.raises(ProgramError, match="binds 0 of 1 slots"):
        verify(bad)


def test_bytes_are_rounded_to_512() -> None:
    assert (TENSOR.requested, TENSOR.bytes) == (30, 512)
    assert [rounded(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]


def test_layer_numbers_are_spelled_out() -> None:
    (call,) = program(ALLOC, FREE).calls
    assert call.spell("pre_fwd.begin:layers.*") == "pre_fwd.begin:layers.7"


def test_the_listing_names_tensor_size_and_stream() -> None:
    text = "\n".join(show_program(program(ALLOC, FREE)))
    assert "1 blocks, 1 calls, 2 instructions" in text
    assert "alloc    own/t  bfloat16[3, 5]  512 B  activations  @default" in text
    assert "free     own/t" in text
