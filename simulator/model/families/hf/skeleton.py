"""What all causal language models of transformers share: what runs around the blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import BLOCK, Buffer, Decoder, Shape
from simulator.model.graph import Graph, Value
from simulator.model.losses import Head, head_weight, loss_of, write_loss
from simulator.model.ops.linear import linear
from simulator.model.ops.pointwise import scale, tanh


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The hidden states that enter the first block, and what the model's locals hold besides."""

    hidden: int
    held: tuple[int, ...]


Block = Callable[[GraphBuilder, ModelConfig, Shape, int], int]
"""Writes one block from x to its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The parts of one family of modules.

    ``start`` writes what precedes the blocks, ``block`` one block from x to its output, ``norm``
    the last norm. ``base`` is the name of the model inside ``...ForCausalLM``; the rest are names
    of its children. ``softcap``: the logits are capped. Blocks are passed all that is held but
    ``not_passed``; a checkpointed block holds its arguments, read or not. ``kind_of``: the kind of
    a layer, one of ``other_blocks``, or empty for ``block``; ``withheld``: what blocks of a kind
    are not passed.
    """

    start: Callable[[GraphBuilder, ModelConfig, Shape], Started]
    block: Block
    norm: Callable[[GraphBuilder, int], int]
    buffers: Callable[[ModelConfig], tuple[Buffer, ...]]
    base: str = "model"
    embedding: str = "embed_tokens"
    blocks: str = "layers"
    last_norm: str = "norm"
    softcap: bool = False
    not_passed: frozenset[str] = frozenset()
    other_blocks: Mapping[str, Block] = field(default_factory=dict)
    kind_of: Callable[[ModelConfig, int], str] = lambda config, layer: ""
    withheld: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __call__(self, config: ModelConfig, shape: Shape) -> Decoder:
        """The graphs of one model for one micro-batch."""
        embedding = self._embedding(config, shape)
        blocks = self._blocks(config, shape, embedding)
        return Decoder(
            embedding=embedding,
            blocks=blocks,
            head=self._head(config, shape, embedding, blocks[-1]),
            loss_part=write_loss(shape, config.hidden, self._projection(config), hf=True),
            buffers=self.buffers(config),
            embedding_fqn=f"{self.base}.{self.embedding}",
            block_fqn=f"{self.base}.{self.blocks}.*",
            head_fqn=f"{self.base}.{self.last_norm}, lm_head",
        )

    def _embedding(self, config: ModelConfig, shape: Shape) -> Graph:
        b = GraphBuilder("embed", shape.dtype, shape.autocast, shape.tuning, shape.float8)
        started = self.start(b, config, shape)
        return b.build(input=None, output=started.hidden, lends=started.held)

    def _blocks(self, config: ModelConfig, shape: Shape, embedding: Graph) -> tuple[Graph, ...]:
        """Each layer's graph; layers of one kind share theirs, and what it is passed its dtype."""
        made: dict[tuple[str, DType], Graph] = {}
        passed, blocks = embedding.values[embedding.output].dtype, []
        for layer in range(config.layers):
            key = self.kind_of(config, layer), passed
            if key not in made:
                made[key] = self._block(config, shape, embedding, *key)
            blocks.append(made[key])
            passed = blocks[-1].values[blocks[-1].output].dtype
        return tuple(blocks)

    def _block(
        self, config: ModelConfig, shape: Shape, embedding: Graph, kind: str, passed: DType
    ) -> Graph:
        block = self.other_blocks[kind] if kind else self.block
        not_passed = self.not_passed | self.withheld.get(kind, frozenset())
        name = f"{BLOCK}.{kind}" if kind else BLOCK
        if passed is not embedding.values[embedding.output].dtype:
            name = f"{name} in {passed.name.lower()}"
        b = GraphBuilder(name, shape.dtype, shape.autocast, shape.tuning, shape.float8)
        b.module = "layers.*.attention"
        x = b.value("x", (shape.batch, shape.seq, config.hidden), passed)
        for lent in _lent(embedding):
            if lent.name not in not_passed and lent != embedding.values[embedding.output]:
                b.borrow(lent.name, lent.shape, lent.dtype)
        return b.build(input=x, output=block(b, config, shape, x))

    def _projection(self, config: ModelConfig) -> Head:
        tied = f"{self.embedding}.weight" if config.tied else ""
        return Head(name="lm_head", vocab=config.vocab, tied=tied, softcap=self.softcap)

    def _head(self, config: ModelConfig, shape: Shape, embedding: Graph, last: Graph) -> Graph:
        """The base model's forward returns after the norm: its locals go, the input among them.

        What the norm returned is a local of the caller, which computes the loss.
        """
        b = GraphBuilder("head", shape.dtype, shape.autocast, shape.tuning, shape.float8)
        b.module = "norm"
        passed = last.values[last.output].dtype
        x = b.value("x", (shape.batch, shape.seq, config.hidden), passed)
        held = [b.borrow(lent.name, lent.shape, lent.dtype) for lent in _lent(embedding)]
        with b.frame(x, *held):
            normed = self.norm(b, x)
        b.module = "head"
        head = self._projection(config)
        if loss_of(shape).projects:
            head_weight(b, normed, head)
            return b.build(input=x, output=normed)
        logits = linear(b, normed, head.name, head.vocab, tied=head.tied)
        if self.softcap:
            capped = tanh(b, scale(b, logits, "logits.divided"), "logits.tanh")
            logits = scale(b, capped, "logits.capped")
        return b.build(input=x, output=logits, through_loss=(normed,))


def register(
    b: GraphBuilder,
    rows: Iterable[tuple[str, str, tuple[int, ...]]],
    *,
    bias_of: slice | None = None,
) -> None:
    """A block's weights in the order torch registers them: rows of (module, name, shape).

    ``bias_of``: each has a bias too, as long as this part of its shape. Ends in the attention.
    """
    for module, name, shape in rows:
        b.module = f"layers.*.{module}"
        b.weight(f"{name}.weight", shape)
        if bias_of is not None:
            b.weight(f"{name}.bias", shape[bias_of])
    b.module = "layers.*.attention"


def _lent(embedding: Graph) -> list[Value]:
    return [embedding.values[number] for number in embedding.lends]
