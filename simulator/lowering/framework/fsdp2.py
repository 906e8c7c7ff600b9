"""FSDP2 (``fully_shard``): when it gathers, reduces, allocates and frees.

Read in torch 2.13, torch/distributed/fsdp/_fully_shard/: ``_fsdp_param_group.py`` (order of
events), ``_fsdp_collectives.py`` (buffers and streams), ``_fsdp_state.py`` (hooks of the root).
The root of torchtitan's wrapping owns no parameters: it communicates nothing, but it frees the
last gathered buffer of forward and waits for the last reduction of backward.
"""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.framework.shards import Shard, shards_of
from simulator.lowering.units import Kind
from simulator.lowering.writer import BlockWriter
from simulator.plan.plan import Plan
from simulator.program.instructions import Category, Collective, Stream, Tensor

GATHERING = (Stream.ALL_GATHER_COPY_IN, Stream.ALL_GATHER)


class Fsdp2:
    """The hooks of FSDP2 with torchtitan's wrapping: embedding, each block, [norm, head]."""

    def __init__(self, plan: Plan) -> None:
        precision, parallelism = plan.training.precision, plan.parallelism
        self.stored, self.compute = precision.parameters, precision.compute
        self.reduce, self.gradient = precision.reduce, precision.gradients
        self.world = parallelism.dp_shard
        self.options = parallelism.fsdp
        self._shards: dict[str, tuple[Shard, ...]] = {}

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """A unit's shards, cut once."""
        if kind.graph.name not in self._shards:
            self._shards[kind.graph.name] = shards_of(kind.graph, self.world)
        return self._shards[kind.graph.name]

    def reshards(self, kind: Kind) -> bool:
        """Whether a unit drops its gathered parameters after forward.

        torchtitan never reshards [norm, head]: backward needs it at once.
        """
        if kind.name == "head" or (kind.last and not self.options.reshard_last_block):
            return False
        return self.options.reshard_after_forward

    # -- forward

    def init(self, w: BlockWriter, kind: Kind) -> None:
        """Each parameter's shard is an allocation of its own."""
        for shard in self.shards(kind):
            tensor = Tensor(
                name=shard.weight.name,
                shape=shard.shape,
                dtype=self.stored,
                category=Category.PARAMETERS,
                module=shard.weight.module,
            )
            w.alloc(tensor, slot=w.shared("own", f"shard.{shard.weight.name}"))

    def begin_forward(self, w: BlockWriter) -> None:
        """``_root_pre_forward``: gathering waits for the optimizer's updates."""
        w.wait_stream(GATHERING, Stream.COMPUTE)

    def pre_forward(self, w: BlockWriter, kind: Kind, previous: Kind | None) -> None:
        """Gather, copy out; the previous unit's gathered buffer goes at the end of the call."""
        w.mark(f"pre_fwd.begin:{kind.fqn}")
        self._unshard(w, kind, "own")
        if previous is not None:
            w.wait(w.event("previous", "copied_out"), *GATHERING)
        self._copy_out(w, kind)
        if previous is not None:
            self._drop_gathered(w, "previous")
        w.mark(f"pre_fwd.end:{kind.fqn}")

    def between_modules(self, w: BlockWriter, kind: Kind) -> None:
        """A second module of the same unit finds it gathered."""
        w.mark(f"pre_fwd.begin:{kind.fqn}")
        w.mark(f"pre_fwd.end:{kind.fqn}")

    def post_forward(self, w: BlockWriter, kind: Kind) -> None:
        """Reshard, if the unit does."""
        w.mark(f"post_fwd.begin:{kind.fqn}")
        if self.reshards(kind):
            self._reshard(w, kind)
        w.mark(f"post_fwd.end:{kind.fqn}")

    def end_forward(self, w: BlockWriter) -> None:
        """The root's ``_post_forward`` flushes the last gathered buffer."""
        w.wait(w.event("own", "copied_out"), *GATHERING)
        self._drop_gathered(w, "own")

    # -- backward

    def pre_backward(self, w: BlockWriter, kind: Kind, ahead: Kind | None, *, first: bool) -> None:
        """Copy out what was gathered ahead, then gather the next unit in backward order."""
        w.mark(f"pre_bwd.begin:{kind.fqn}")
        if self.reshards(kind):
            if first:
                self._unshard(w, kind, "own")
            self._copy_out(w, kind)
            w.wait(w.event("own", "copied_out"), *GATHERING)
            self._drop_gathered(w, "own")
        if ahead is not None and self.reshards(ahead):
            self._unshard(w, ahead, "next")
        w.mark(f"pre_bwd.end:{kind.fqn}")

    def post_backward(
        self, w: BlockWriter, kind: Kind, gradients: dict[str, int], pending: Kind | None
    ) -> None:
        """Reshard; drop the reduction in flight; copy the gradients in and reduce-scatter them."""
        w.mark(f"post_bwd.begin:{kind.fqn}")
        self._reshard(w, kind)
        if pending is not None:
            self._drop_reduce_input(w)
        self._reduce(w, kind, gradients)
        w.mark(f"post_bwd.end:{kind.fqn}")

    def end_backward(self, w: BlockWriter, pending: Kind) -> None:
        """``_root_post_backward_final_callback``: wait for the last reduction."""
        w.wait(w.event("pending", "post_reduced"), Stream.COMPUTE)
        self._drop_reduce_input(w)

    def zero_grad(self, w: BlockWriter, kind: Kind) -> None:
        """The unit's gradients are views of one block: it goes when all of them are None."""
        w.free(w.shared("own", "gradients"))

    # -- pieces

    def _unshard(self, w: BlockWriter, kind: Kind, role: str) -> None:
        """``foreach_all_gather``: cast, copy in, gather; the input is a slice of the output.

        Alone in the world a unit has nothing to gather (``FSDPParamGroup.unshard``).
        """
        if self.world == 1:
            return
        shards = self.shards(kind)
        numel = sum(shard.numel for shard in shards)
        module = kind.graph.ops[0].module
        local, size = numel * self.compute.itemsize, numel * self.compute.itemsize * self.world
        cast = None
        if self.stored is not self.compute:
            cast = w.alloc(
                _flat("cast_shard", numel, self.compute, Category.ALL_GATHER, module),
                Stream.ALL_GATHER_COPY_IN,
            )
            w.launch(
                _copy("all_gather.cast", numel * self.stored.itemsize, local),
                module,
                Stream.ALL_GATHER_COPY_IN,
            )
        w.alloc(
            _flat("gathered", numel * self.world, self.compute, Category.ALL_GATHER, module),
            Stream.ALL_GATHER_COPY_IN,
            slot=w.shared(role, "gathered"),
        )
        copy_in = _copy("all_gather.copy_in", local, local)
        w.launch(copy_in, module, Stream.ALL_GATHER_COPY_IN)
        if cast is not None:
            w.free(cast)
        w.wait_stream((Stream.ALL_GATHER,), Stream.ALL_GATHER_COPY_IN)
        w.collective(
            Collective(
                kind="all_gather",
                bytes=size,
                group="dp_shard",
                stream=Stream.ALL_GATHER,
                name=f"all_gather {kind.fqn}",
                module=module,
            )
        )
        w.record(w.event(role, "all_gathered"), Stream.ALL_GATHER)

    def _copy_out(self, w: BlockWriter, kind: Kind) -> None:
        """``foreach_all_gather_copy_out``: one storage a parameter, filled by one split copy."""
        if self.world == 1:
            self._copy_local(w, kind)
            return
        w.wait(w.event("own", "all_gathered"), Stream.COMPUTE)
        size = sum(self._alloc_unsharded(w, shard) for shard in self.shards(kind))
        w.launch(_copy("all_gather.copy_out", size, size), kind.graph.ops[0].module)
        w.record(w.event("own", "copied_out"), Stream.COMPUTE)

    def _copy_local(self, w: BlockWriter, kind: Kind) -> None:
        """World size 1: each parameter is cast and copied; a cast lives until the next one is made.

        ``wait_for_unshard`` in torch 2.13.
        """
        before = None
        for shard in self.shards(kind):
            cast = None
            local = shard.numel * self.compute.itemsize
            if self.stored is not self.compute:
                name, module = f"{shard.weight.name}.cast", shard.weight.module
                tensor = _flat(name, shard.numel, self.compute, Category.ALL_GATHER, module)
                cast = w.alloc(tensor)
                w.launch(_copy("unshard.cast", shard.numel * self.stored.itemsize, local), module)
                if before is not None:
                    w.free(before)
            self._alloc_unsharded(w, shard)
            w.launch(_copy("unshard.copy", local, local), shard.weight.module)
            before = cast
        if before is not None:
            w.free(before)
        w.record(w.event("own", "copied_out"), Stream.COMPUTE)

    def _alloc_unsharded(self, w: BlockWriter, shard: Shard) -> int:
        """Allocate one gathered parameter; returns its bytes."""
        name, module = shard.weight.name, shard.weight.module
        tensor = _flat(name, shard.padded, self.compute, Category.UNSHARDED_PARAMETERS, module)
        w.alloc(tensor, slot=w.shared("own", f"unsharded.{name}"))
        return tensor.requested

    def _drop_gathered(self, w: BlockWriter, role: str) -> None:
        if self.world > 1:
            w.free(w.shared(role, "gathered"))

    def _reshard(self, w: BlockWriter, kind: Kind) -> None:
        w.free_all(w.shared("own", f"unsharded.{shard.weight.name}") for shard in self.shards(kind))

    def _drop_reduce_input(self, w: BlockWriter) -> None:
        """The compute stream, which will reuse the memory, waits for the reduce-scatter first."""
        w.wait(w.event("pending", "reduced"), Stream.COMPUTE)
        w.free(w.shared("pending", "reduce_input"))

    def _reduce(self, w: BlockWriter, kind: Kind, gradients: dict[str, int]) -> None:
        """``foreach_reduce``: copy in (chunk_cat), reduce-scatter, cast to the gradients' dtype."""
        shards = self.shards(kind)
        module = kind.graph.ops[-1].module
        numel = sum(shard.numel for shard in shards)
        source = _flat(
            "reduce_input", numel * self.world, self.reduce, Category.REDUCE_SCATTER, module
        )
        w.alloc(source, slot=w.shared("own", "reduce_input"))
        read = sum(shard.weight.numel for shard in shards) * self.compute.itemsize
        w.launch(_copy("reduce_scatter.copy_in", read, source.requested), module)
        *others, last = (gradients[shard.weight.name] for shard in shards)
        w.free_all(reversed(others))
        w.wait_stream((Stream.REDUCE_SCATTER,), Stream.COMPUTE)
        aliased = self.reduce is self.gradient  # the gradients are views of the output
        reduced = w.alloc(
            _flat(
                "reduced",
                numel,
                self.reduce,
                Category.GRADIENTS if aliased else Category.REDUCE_SCATTER,
                module,
            ),
            Stream.REDUCE_SCATTER,
            slot=w.shared("own", "gradients") if aliased else None,
        )
        self._reduce_scatter(w, kind, source.requested, module)
        w.record(w.event("own", "reduced"), Stream.REDUCE_SCATTER)
        if not aliased:
            self._cast_gradients(w, numel, module, reduced)
        w.record(w.event("own", "post_reduced"), Stream.REDUCE_SCATTER)
        w.free(last)

    def _reduce_scatter(self, w: BlockWriter, kind: Kind, size: int, module: str) -> None:
        if self.world == 1:
            w.launch(_copy("reduce.copy", size, size), module, Stream.REDUCE_SCATTER)
            return
        w.collective(
            Collective(
                kind="reduce_scatter",
                bytes=size,
                group="dp_shard",
                stream=Stream.REDUCE_SCATTER,
                name=f"reduce_scatter {kind.fqn}",
                module=module,
            )
        )

    def _cast_gradients(self, w: BlockWriter, numel: int, module: str, reduced: int) -> None:
        """``_to_dtype_if_needed``: a copy in the gradients' dtype; the reduced one goes."""
        tensor = _flat("gradients", numel, self.gradient, Category.GRADIENTS, module)
        w.alloc(tensor, Stream.REDUCE_SCATTER, slot=w.shared("own", "gradients"))
        read = numel * self.reduce.itemsize
        cast = _copy("reduce_scatter.cast", read, tensor.requested)
        w.launch(cast, module, Stream.REDUCE_SCATTER)
        w.free(reduced)


def _flat(name: str, numel: int, dtype: DType, category: Category, module: str) -> Tensor:
    return Tensor(name=name, shape=(numel,), dtype=dtype, category=category, module=module)


def _copy(name: str, read: int, written: int) -> Elementwise:
    return Elementwise(name=name, kind="copy", read=read, written=written)
