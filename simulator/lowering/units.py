"""The model cut into the units that a framework hooks: embedding, each block, [norm, head]."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.kernels import Attention
from simulator.lowering.recompute import Recompute, plan_recompute
from simulator.model.decoder import Decoder
from simulator.model.graph import Graph

LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A sort of unit, written once: its graph, its recompute policy and the hooks' name for it.

    ``last`` sets the last block apart where a policy treats it otherwise.
    """

    name: str
    fqn: str
    graph: Graph
    recompute: Recompute
    last: bool = False

    @property
    def recomputed_flops(self) -> int:
        """FLOPs of matrix products and attention that backward computes again.

        Attention is counted in full, as MFU counts it (``model/count.py``).
        """
        total = 0
        for index, op in enumerate(self.graph.ops[: self.recompute.stop]):
            if index not in self.recompute.cached:
                halved = isinstance(op.kernel, Attention) and op.kernel.causal
                total += op.kernel.flops * (2 if halved else 1)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One module instance. ``label`` names its registers."""

    kind: Kind
    label: str
    layer: int | None = None


def units_of(decoder: Decoder, recompute: str, *, last_apart: bool) -> tuple[Unit, ...]:
    """The units in forward order; checkpointing wraps blocks only.

    ``last_apart``: give the last block a kind of its own.
    """
    embedding = Kind(
        name="embedding",
        fqn=decoder.embedding_fqn,
        graph=decoder.embedding,
        recompute=plan_recompute(decoder.embedding, "none"),
    )
    policy = plan_recompute(decoder.block, recompute)
    block = Kind(name="block", fqn=decoder.block_fqn, graph=decoder.block, recompute=policy)
    last = block
    if last_apart:
        last = Kind(
            name="last_block",
            fqn=decoder.block_fqn,
            graph=decoder.block,
            recompute=policy,
            last=True,
        )
    head = Kind(
        name="head",
        fqn=decoder.head_fqn,
        graph=decoder.head,
        recompute=plan_recompute(decoder.head, "none"),
    )
    blocks = (
        Unit(
            kind=last if layer == decoder.layers - 1 else block,
            label=f"layers.{layer}",
            layer=layer,
        )
        for layer in range(decoder.layers)
    )
    return (
        Unit(kind=embedding, label="embed"),
        *blocks,
        Unit(kind=head, label="head"),
    )
