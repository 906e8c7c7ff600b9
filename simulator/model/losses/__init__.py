"""Losses: from the last norm to the scalar. One file an implementation, joined here."""

from __future__ import annotations

from simulator.errors import UnknownNameError, UnsupportedError
from simulator.model.builder import GraphBuilder
from simulator.model.decoder import LossPart, Shape
from simulator.model.losses.chunked import Chunked, ChunkedLogits
from simulator.model.losses.chunked_head import ChunkedHead
from simulator.model.losses.compiled import Compiled
from simulator.model.losses.from_logits import FromLogits
from simulator.model.losses.fused_linear import FusedLinear
from simulator.model.losses.loss import Head, Loss, Task, head_weight

__all__ = ["LOSSES", "Head", "head_weight", "loss_of", "write_loss"]

LOSSES: dict[str, Loss] = {
    "eager": FromLogits(),
    "eager-kept-logits": FromLogits(kept=True),
    "hf-upcast": FromLogits(upcasts=True, kept=True),
    "hf-upcast-dropped-logits": FromLogits(upcasts=True),
    "hf-shifted-logits": FromLogits(shifts=True),
    "hf-upcast-triton": FromLogits(upcasts=True, triton=True),
    "compiled": Compiled(),
    "chunked": Chunked(),
    "chunked-head": ChunkedHead(),
    "fused-linear": FusedLinear(),
}
"""By the name that a scenario gives it."""


def loss_of(shape: Shape) -> Loss:
    """The loss that a micro-batch is written for.

    Raises:
        UnknownNameError: no such loss.
    """
    if shape.loss.name not in LOSSES:
        raise UnknownNameError("loss", shape.loss.name, LOSSES)
    return ChunkedLogits() if shape.loss.cuts_logits else LOSSES[shape.loss.name]


def write_loss(shape: Shape, hidden: int, head: Head, *, hf: bool) -> LossPart:
    """The loss' graph; its input is the logits, or the normed state where the loss projects.

    Raises:
        UnsupportedError: a loss that does not go with the model, autocast or capped logits.
    """
    loss = loss_of(shape)
    _refuse(shape, loss, head, hf=hf)
    b = GraphBuilder("loss", shape.dtype, tuning=shape.tuning)
    width = hidden if loss.projects else head.vocab
    x = b.value("x", (shape.batch, shape.seq, width), shape.autocast or shape.dtype)
    written = loss.write(b, x, Task(head=head, hf=hf, choice=shape.loss))
    graph = b.build(input=x, output=written.loss, until_next=written.held)
    returned = written.returned
    if hf:
        returned = (len(graph.ops),) if loss.projects else (*returned, len(graph.ops))
    return LossPart(graph=graph, returned=returned, projects=loss.projects)


def _refuse(shape: Shape, loss: Loss, head: Head, *, hf: bool) -> None:
    if shape.loss.name == "hf-shifted-logits" and not hf:
        raise UnsupportedError("loss 'hf-shifted-logits' is transformers' own; use eager")
    if loss.projects and shape.autocast not in (None, shape.dtype):
        raise UnsupportedError(f"loss {shape.loss.name!r} under autocast is not supported")
    if head.softcap and (loss.projects or shape.loss.name == "compiled"):
        text = f"loss {shape.loss.name!r} with capped logits is not supported"
        raise UnsupportedError(f"{text}; eager is")
