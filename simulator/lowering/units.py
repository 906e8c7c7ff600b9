"""The model cut into units: embedding, each block, [norm, head]; and which the framework wraps."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from simulator.errors import UnsupportedError, did_you_mean
from simulator.kernels import Attention, Kernel
from simulator.lowering.compiled import computed_again, plan_compiled
from simulator.lowering.recompute import Recompute, plan_recompute
from simulator.model.decoder import BLOCK, Decoder
from simulator.model.graph import Graph
from simulator.plan.plan import Training

LOSS = "loss"

PEFT = "peft"
"""The wrapping that gives each trained leaf of a block a unit inside the block's."""

WRAPS: dict[str, frozenset[str]] = {
    "torchtitan": frozenset({"embedding", "block", "head"}),
    "block": frozenset({"block"}),
    "none": frozenset(),
    PEFT: frozenset({"block"}),
}
"""Wrapping -> sorts of unit that get a ``fully_shard`` of their own; the root keeps the rest.

torchtitan's is ``apply_fsdp_to_decoder`` in its distributed/fsdp.py (2025 and later); peft's is
``fsdp_auto_wrap_policy`` in its utils/other.py.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A sort of unit, written once: its graph, its recompute policy and the hooks' name for it.

    ``wrapped``: the framework hooks it as a group of its own. ``last``: it is the last block.
    ``compiled``: torch.compile makes its code. ``skipped``: its last module doesn't run in the
    model's forward, but in the loss.
    """

    name: str
    fqn: str
    graph: Graph
    recompute: Recompute
    wrapped: bool
    last: bool = False
    compiled: bool = False
    skipped: bool = False

    @property
    def reentrant(self) -> bool:
        """Whether backward runs it again before anything else."""
        return any(region.reentrant for region in self.recompute.regions)

    @property
    def recomputed_flops(self) -> int:
        """FLOPs of matrix products and attention that backward computes again.

        Attention is counted in full, as MFU counts it (``model/count.py``).
        """
        total = 0
        for kernel in map(self._kernel, self._recomputed_ops()):
            halved = isinstance(kernel, Attention) and kernel.causal
            total += kernel.flops * (2 if halved else 1)
        return total

    def _kernel(self, index: int) -> Kernel:
        return self.graph.ops[index].kernel

    def _recomputed_ops(self) -> Iterable[int]:
        if self.compiled:
            return computed_again(self.graph, self.recompute.kept)
        return (
            index
            for region in self.recompute.regions
            for index in range(region.first, region.stop)
            if index not in region.cached
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One module instance. ``label`` names its registers."""

    kind: Kind
    label: str
    layer: int | None = None

    @property
    def fqn(self) -> str:
        """The hooks' name for this instance: ``layers.3``."""
        return self.kind.fqn.replace("*", str(self.layer))


def units_of(
    decoder: Decoder,
    training: Training,
    *,
    wrap: str | tuple[str, ...] = "torchtitan",
    last_apart: bool = False,
) -> tuple[Unit, ...]:
    """The units in forward order; checkpointing applies to blocks only.

    Under ``every-N`` every N-th block is checkpointed in full, the first one included.
    ``last_apart``: give the last block a kind of its own.
    """
    wrapped = wrapped_sorts(wrap, decoder)
    embedding = Kind(
        name="embedding",
        fqn=decoder.embedding_fqn,
        graph=decoder.embedding,
        recompute=plan_recompute(decoder.embedding, "none"),
        wrapped="embedding" in wrapped,
    )
    head = Kind(
        name="head",
        fqn=decoder.head_fqn,
        graph=decoder.head,
        recompute=plan_recompute(decoder.head, "none"),
        wrapped="head" in wrapped,
        skipped=decoder.loss_part.projects,
    )
    blocks = _Blocks(decoder, training, "block" in wrapped)
    return (
        Unit(kind=embedding, label="embed"),
        *(blocks.unit(layer, apart=last_apart) for layer in range(decoder.layers)),
        Unit(kind=head, label="head"),
    )


class _Blocks:
    """Kinds of blocks: by graph, by recompute policy, and the last one apart where asked."""

    def __init__(self, decoder: Decoder, training: Training, wrapped: bool) -> None:
        self.decoder, self.wrapped, self.training = decoder, wrapped, training
        self.every, self.mode = 1, training.activation_checkpointing
        if self.mode.startswith("every-"):
            self.every, self.mode = int(self.mode.removeprefix("every-")), "full"
        self._kinds: dict[tuple[str, str, bool], Kind] = {}
        if self.mode == "megatron-selective":
            _refuse_unknown_parts(decoder, training.checkpoint_modules)

    def unit(self, layer: int, *, apart: bool) -> Unit:
        """The block of one layer."""
        mode = self.mode if layer % self.every == 0 else "none"
        last = apart and layer == self.decoder.layers - 1
        kind = self._kind(self.decoder.blocks[layer], mode, last)
        return Unit(kind=kind, label=f"layers.{layer}", layer=layer)

    def _kind(self, graph: Graph, mode: str, last: bool) -> Kind:
        key = (graph.name, mode, last)
        if key not in self._kinds:
            name = ("last_block" if last else "block") + graph.name.removeprefix(BLOCK)
            compiled = self.training.compile == "block"
            recompute = plan_recompute(
                graph,
                mode,
                early_stop=self.training.early_stop,
                save=self.training.checkpoint_save,
                modules=self.training.checkpoint_modules,
                offload=self.training.checkpoint_offload,
                reentrant=self.training.checkpoint_reentrant,
            )
            if compiled:
                recompute = plan_compiled(graph, recompute.regions)
            self._kinds[key] = Kind(
                name=name if mode == self.mode else f"{name}_{mode}",
                fqn=self.decoder.block_fqn,
                graph=graph,
                recompute=recompute,
                wrapped=self.wrapped,
                last=last,
                compiled=compiled,
            )
        return self._kinds[key]


def _refuse_unknown_parts(decoder: Decoder, modules: Collection[str]) -> None:
    known = {part.name for graph in decoder.blocks for part in graph.parts}
    for name in modules:
        if name not in known:
            text = f"no block of this model has a part {name!r} to checkpoint"
            raise UnsupportedError(f"{text}{did_you_mean(name, known)}")


def wraps_blocks(wrap: str | tuple[str, ...]) -> bool:
    """Whether each block is a group of its own."""
    if isinstance(wrap, str):
        return "block" in WRAPS.get(wrap, ())
    return any("*" in pattern for pattern in wrap)


def wrapped_sorts(wrap: str | tuple[str, ...], decoder: Decoder) -> frozenset[str]:
    """Sorts of unit that ``wrap`` gives a group of their own.

    A tuple of patterns names modules as the model does: its embedding, ``layers.*``, its head's.

    Raises:
        UnsupportedError: a wrapping or pattern that this version does not know.
    """
    if isinstance(wrap, str):
        if wrap not in WRAPS:
            raise UnsupportedError(f"fsdp.wrap {wrap!r}{did_you_mean(wrap, WRAPS)}")
        return WRAPS[wrap]
    return frozenset(_sort_of(pattern, decoder) for pattern in wrap)


def _sort_of(pattern: str, decoder: Decoder) -> str:
    names: dict[str, Collection[str]] = {
        "embedding": (decoder.embedding_fqn,),
        "block": (decoder.block_fqn,),
        "head": (decoder.head_fqn,),
    }
    for sort, known in names.items():
        if pattern in known:
            return sort
    every = [name for known in names.values() for name in known]
    raise UnsupportedError(
        f"fsdp.wrap: no module {pattern!r} can be wrapped{did_you_mean(pattern, every)}"
    )
