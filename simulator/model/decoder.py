"""A decoder-only model as four graphs: embedding, one block, [norm, head], loss."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.model.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The micro-batch a rank runs and the dtype its parameters are gathered in.

    ``autocast``: the dtype that ``torch.autocast`` casts matrix products to, if it is on.
    """

    batch: int
    seq: int
    dtype: DType
    autocast: DType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A persistent tensor that is no parameter, such as the rotary frequencies."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """``layers`` identical ``block`` s between ``embedding`` and ``head``; then ``loss``.

    ``block_fqn`` and its siblings are the names that the framework's own hooks print.
    ``loss_in_forward``: the model's own forward computes the loss, and returns the logits with it.
    """

    embedding: Graph
    block: Graph
    head: Graph
    loss: Graph
    layers: int
    buffers: tuple[Buffer, ...]
    embedding_fqn: str
    block_fqn: str
    head_fqn: str
    loss_in_forward: bool = False

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return (
            self.embedding.parameters + self.layers * self.block.parameters + self.head.parameters
        )
