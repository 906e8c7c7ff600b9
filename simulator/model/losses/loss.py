"""The protocol of a loss: what is written between the last norm and the scalar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.graph import Weight
from simulator.model.loss_choice import LossChoice
from simulator.model.ops.plain import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The projection to the vocabulary. ``tied``: the embedding's parameter that serves as it."""

    name: str
    vocab: int
    tied: str = ""
    softcap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a loss is written for. ``hf``: transformers' model, which computes the loss itself.

    torchtitan's data loader hands out labels that are shifted already; transformers' loss shifts
    them, or its logits.
    """

    head: Head
    hf: bool
    choice: LossChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A loss as it stands in a graph.

    ``returned``: how many ops have run when each tensor that the model's forward returns is there
    (the loss itself is added for a model that computes it); ``held``: what the training loop holds
    until the next forward has returned.
    """

    loss: int
    returned: tuple[int, ...]
    held: int | None = None


class Loss(Protocol):
    """One implementation."""

    @property
    def projects(self) -> bool:
        """Whether it multiplies by the head's weight itself: its input is then the normed state."""

    def write(self, b: GraphBuilder, x: int, task: Task) -> Written:
        """Write the graph from ``x``, the logits, or the normed hidden state."""


def head_weight(b: GraphBuilder, x: int, head: Head) -> Weight:
    """The head's parameter, which is registered in the head's graph."""
    shape = (head.vocab, b.of(x).shape[-1])
    return b.weight(head.tied or f"{head.name}.weight", shape, tied=bool(head.tied))


def shifted_labels(b: GraphBuilder, batch: int, seq: int) -> tuple[int, ...]:
    """``ForCausalLMLoss`` pads the labels and drops the first: a copy unless the batch is 1.

    The padded labels, and the shifted ones last.
    """
    padded = plain(b, "labels.padded", (batch, seq + 1), DType.INT64)
    if batch == 1:
        return (padded,)
    return padded, plain(b, "labels.shifted", (batch, seq), DType.INT64, (padded,))
