"""Gradients of a flat parameter: put end to end, reduced over ranks (``_post_backward_hook``)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.fsdp1.flat import FlatParameter
from simulator.lowering.framework.fsdp1.setting import Setting
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream

UNREDUCED = "unreduced"


class Reduce:
    """Writes what happens to gradients."""

    def __init__(self, setting: Setting) -> None:
        self.s = setting

    def flatten(self, w: BlockWriter, parameter: FlatParameter, gradients: Sequence[int]) -> int:
        """``SplitWithSizesBackward``: one gradient of them all; what aligns them is zeros."""
        dtype, category, module = self.s.compute, Category.UNSHARDED_GRADIENTS, parameter.last
        zeros = [w.alloc(flat("padding", n, dtype, category, module)) for n in parameter.padding]
        tensor = flat("flat_param.grad", parameter.numel, dtype, category, module)
        slot = w.alloc(tensor)
        w.launch(copy("flat_param.grad.cat", tensor.requested, tensor.requested), module)
        w.free_all((*zeros, *gradients))
        return slot

    def add(self, w: BlockWriter, parameter: FlatParameter) -> int:
        """AccumulateGrad: add to the gradient that was not reduced; its slot."""
        size = parameter.numel * self.s.compute.itemsize
        w.launch(copy("flat_param.grad.add", 2 * size, size), parameter.last)
        return w.shared(parameter.role, parameter.register(UNREDUCED))

    def keep(self, w: BlockWriter, parameter: FlatParameter, gradient: int) -> None:
        """Without a reduction it stays (``no_sync``).

        Original parameters get views of it; their ``.grad`` is first made as large as they are now.
        """
        w.promote(gradient, parameter.role, parameter.register(UNREDUCED))
        if not self.s.original:
            return
        for member in parameter.members:
            numel = member.within(parameter.shard)
            if numel:
                category, module = Category.UNSHARDED_GRADIENTS, member.weight.module
                w.free(w.alloc(flat("grad.empty_like", numel, parameter.stored, category, module)))

    def reduce(
        self, w: BlockWriter, parameter: FlatParameter, gradient: int, micro: MicroStep
    ) -> None:
        """``_reduce_grad``, on a stream of its own: cast, pad, reduce-scatter, cast back."""
        w.wait_stream((Stream.POST_BACKWARD,), Stream.COMPUTE)
        temporary = []
        if self.s.compute is not self.s.reduce:
            temporary.append(self._copied(w, "to", parameter, parameter.numel))
        if parameter.padded != parameter.numel:
            temporary.append(self._copied(w, "pad", parameter, parameter.padded))
        becomes = self.s.reduce is parameter.stored and not micro.summed
        category = Category.GRADIENTS if becomes else Category.REDUCE_SCATTER
        tensor = flat("flat_param.grad", parameter.shard, self.s.reduce, category, parameter.last)
        home = (
            w.shared(parameter.role, parameter.register("gradients")) if not micro.summed else None
        )
        shard = w.alloc(tensor, Stream.POST_BACKWARD, slot=home if becomes else None)
        self._sum(w, parameter)
        self._finish(w, parameter, shard, home, micro)
        w.free_all(temporary)
        w.free(gradient)

    def _copied(self, w: BlockWriter, what: str, parameter: FlatParameter, numel: int) -> int:
        """A copy of the whole gradient in the dtype that it is reduced in."""
        category, stream = Category.REDUCE_SCATTER, Stream.POST_BACKWARD
        tensor = flat(f"flat_param.grad.{what}", numel, self.s.reduce, category, parameter.last)
        read = numel * (self.s.compute if what == "to" else self.s.reduce).itemsize
        slot = w.alloc(tensor, stream)
        w.launch(copy(tensor.name, read, tensor.requested), parameter.last, stream)
        return slot

    def _sum(self, w: BlockWriter, parameter: FlatParameter) -> None:
        before, _ = self.s.divisors
        size = parameter.padded * self.s.reduce.itemsize
        self._divide(w, parameter, size, before, Stream.POST_BACKWARD)
        w.collective(
            Collective(
                kind="reduce_scatter",
                bytes=size,
                group="dp_shard",
                stream=Stream.POST_BACKWARD,
                name=f"reduce_scatter {{{parameter.role}}}",
                module=parameter.last,
            )
        )
        if self.s.replicas > 1:
            w.wait_stream((Stream.ALL_REDUCE,), Stream.POST_BACKWARD)
            w.collective(
                Collective(
                    kind="all_reduce",
                    bytes=size // self.s.world,
                    group="dp_replicate",
                    stream=Stream.ALL_REDUCE,
                    name=f"all_reduce {{{parameter.role}}}",
                    module=parameter.last,
                )
            )

    def _finish(
        self,
        w: BlockWriter,
        parameter: FlatParameter,
        shard: int,
        home: int | None,
        micro: MicroStep,
    ) -> None:
        """``_accumulate_sharded_grad``: in the stored dtype it becomes, or joins, the gradient."""
        stream = Stream.ALL_REDUCE if self.s.replicas > 1 else Stream.POST_BACKWARD
        reduced = parameter.shard * self.s.reduce.itemsize
        self._divide(w, parameter, reduced, self.s.divisors[1], stream)
        stored = parameter.shard * parameter.stored.itemsize
        if self.s.reduce is not parameter.stored:
            category = Category.REDUCE_SCATTER if micro.summed else Category.GRADIENTS
            tensor = flat(
                "flat_param.grad", parameter.shard, parameter.stored, category, parameter.last
            )
            cast = w.alloc(tensor, stream, slot=home)
            w.launch(copy("flat_param.grad.cast", reduced, stored), parameter.last, stream)
            w.free(shard)
            shard = cast
        if micro.summed:
            w.launch(copy("flat_param.grad.add", 2 * stored, stored), parameter.last, stream)
            w.free(shard)

    def _divide(
        self, w: BlockWriter, parameter: FlatParameter, size: int, by: int, stream: Stream
    ) -> None:
        if by > 1:
            w.launch(copy("flat_param.grad.div", size, size), parameter.last, stream)
