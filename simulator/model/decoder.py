"""A decoder-only model as graphs: embedding, the blocks, [norm, head], loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.dtypes import DType
from simulator.fine_tuning import FineTuning
from simulator.model.float8 import Float8
from simulator.model.graph import Graph
from simulator.model.loss_choice import EAGER, LossChoice

BLOCK = "layers.*"
"""What the names of blocks' graphs begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The micro-batch a rank runs and the dtype its parameters are gathered in.

    ``autocast``: the dtype that ``torch.autocast`` casts matrix products to, if it is on.
    ``tuning``: what of the model is trained, if that is not all. ``float8``: how the blocks'
    linears multiply in it, if they do. ``loss``: how the logits become the loss. ``mask``: the
    batch's ``attention_mask``, which is a thing of style ``hf``: ``none``, of ``ones``, or
    ``padded``. ``mixed``: the parameters are stored in another dtype than they are gathered in;
    ``casts``: the blocks' floating-point arguments are cast to the latter
    (``cast_forward_inputs``). ``input_requires_grad``: the embedding's output is made to require a
    gradient, trained or not (transformers' ``enable_input_require_grads``). ``flat``: the frozen
    weights of a block, and of what is no block, are seen by autograd as parts of one parameter with
    the trained ones (FSDP1).
    """

    batch: int
    seq: int
    dtype: DType
    autocast: DType | None = None
    tuning: FineTuning | None = None
    float8: Float8 | None = None
    loss: LossChoice = EAGER
    mask: str = "none"
    mixed: bool = False
    casts: bool = False
    input_requires_grad: bool = False
    flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A persistent tensor that is no parameter, such as the rotary frequencies."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPart:
    """The loss' graph and what of it the model's own forward runs.

    ``returned``: how many of its ops have run when each tensor is there that the forward returns:
    (0,) where that is the head's output and the training loop computes the loss. ``projects``: the
    head's product is in this graph, and its weight is in the head's.
    """

    graph: Graph
    returned: tuple[int, ...]
    projects: bool

    @property
    def inside(self) -> int:
        """How many ops the model's own forward runs."""
        return max(self.returned)

    @property
    def in_forward(self) -> bool:
        """Whether the model's own forward computes the loss."""
        return self.inside == len(self.graph.ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """``blocks``, one a layer, between ``embedding`` and ``head``; then the loss.

    Layers of one kind share their graph, and different graphs have different names.
    ``block_fqn`` and its siblings are the names that the framework's own hooks print.
    """

    embedding: Graph
    blocks: tuple[Graph, ...]
    head: Graph
    loss_part: LossPart
    buffers: tuple[Buffer, ...]
    embedding_fqn: str
    block_fqn: str
    head_fqn: str

    @property
    def loss(self) -> Graph:
        """The loss' graph."""
        return self.loss_part.graph

    @property
    def layers(self) -> int:
        """How many blocks there are."""
        return len(self.blocks)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Each graph that has parameters, once."""
        distinct = {graph.name: graph for graph in (self.embedding, *self.blocks, self.head)}
        return tuple(distinct.values())

    def uncached(self) -> Decoder:
        """The same where autocast caches no cast: of parameters that are views, it does not."""
        found = {graph.name: replace(graph, until_loss=()) for graph in self.graphs}
        return replace(
            self,
            embedding=found[self.embedding.name],
            blocks=tuple(found[block.name] for block in self.blocks),
            head=found[self.head.name],
        )

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return sum(graph.parameters for graph in (self.embedding, *self.blocks, self.head))

    @property
    def trained_parameters(self) -> int:
        """Those of them that are trained."""
        graphs = (self.embedding, *self.blocks, self.head)
        return sum(weight.numel for graph in graphs for weight in graph.trained if not weight.tied)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets: of the routed experts, those that it is sent to."""
        return sum(graph.active_parameters for graph in (self.embedding, *self.blocks, self.head))
