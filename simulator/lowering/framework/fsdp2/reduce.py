"""Gradients of a group: accumulated unsharded, or reduced over ranks (``foreach_reduce``)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.kernels import Elementwise
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.fsdp2.groups import Group, Member, Setting
from simulator.lowering.framework.micro import MicroStep
from simulator.lowering.optimizer.in_backward import InBackward
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream, Tensor


class Reduce:
    """Writes what happens to a group's gradients after its backward."""

    def __init__(self, setting: Setting, in_backward: InBackward | None = None) -> None:
        self.s, self.in_backward = setting, in_backward

    @property
    def converts(self) -> bool:
        """Whether accumulated gradients have another dtype than autograd's."""
        return self.s.reduce is not self.s.compute

    def accumulate(self, w: BlockWriter, group: Group, gradients: Sequence[int]) -> None:
        """``accumulate_unsharded_grad_if_needed``: add to the converted gradients of before."""
        for member in group.members:
            size = member.shard.weight.numel * self.s.compute.itemsize
            total = member.shard.weight.numel * self.s.reduce.itemsize
            w.launch(copy("accumulate", size + total, total), member.shard.weight.module)
        w.free_all(gradients)

    def convert(self, w: BlockWriter, group: Group, gradients: Sequence[int]) -> None:
        """``to_accumulated_grad_if_needed``: without a reduction gradients wait in its dtype."""
        for member, slot in zip(group.members, gradients, strict=True):
            tensor = Tensor(
                name=f"{member.name}.accumulated",
                shape=member.shard.weight.shape,
                dtype=self.s.reduce,
                category=Category.UNSHARDED_GRADIENTS,
                module=member.shard.weight.module,
            )
            w.alloc(tensor, slot=accumulated(w, member))
            read = member.shard.weight.numel * self.s.compute.itemsize
            w.launch(copy("accumulate.cast", read, tensor.requested), tensor.module)
            w.free(slot)

    def keep(self, w: BlockWriter, group: Group, gradients: Sequence[int]) -> None:
        """Gradients that need no conversion just stay."""
        for member, slot in zip(group.members, gradients, strict=True):
            w.promote(slot, member.home, f"accumulated.{member.name}")

    def becomes_gradients(self, micro: MicroStep) -> bool:
        """Whether the reduced buffer itself is the gradients: not cast, added or taken away."""
        aliased = self.s.reduce is self.s.gradient
        return aliased and not micro.summed and not self.s.offload

    def retained(self, micro: MicroStep) -> bool:
        """HSDP holds each group's all-reduced buffer until backward ends (``AllReduceState``).

        Where it becomes the gradients, they are what holds it, unless they go before.
        """
        goes = self.in_backward is not None or not self.becomes_gradients(micro)
        return self.s.replicas > 1 and self.s.rules.retains_all_reduce and goes

    def drop_input(self, w: BlockWriter, role: str) -> None:
        """The compute stream, which will reuse the memory, waits for the reduce-scatter first."""
        if not self.s.rules.keeps_reduce_input:
            return
        w.wait(w.event(role, "reduced"), Stream.COMPUTE)
        w.free(w.shared(role, "reduce_input"))

    def reduce(
        self, w: BlockWriter, group: Group, gradients: Sequence[int], micro: MicroStep
    ) -> None:
        """``foreach_reduce``: copy in (chunk_cat), reduce-scatter, all-reduce, cast."""
        source = flat(
            "reduce_input",
            group.numel * self.s.world,
            self.s.reduce,
            Category.REDUCE_SCATTER,
            group.last,
        )
        converted = micro.accumulated and self.converts
        width = self.s.reduce.itemsize if converted else self.s.compute.itemsize
        read = sum(member.shard.weight.numel for member in group.members) * width
        kernel = copy("reduce_scatter.copy_in", read, source.requested)
        *others, last = gradients
        slot = self._copy_in(w, group, source, kernel, others)
        self._reduce_scatter(w, group, source.requested, micro)
        w.free(last)
        if not self.s.rules.keeps_reduce_input:
            w.free(slot)

    def _copy_in(
        self,
        w: BlockWriter,
        group: Group,
        source: Tensor,
        kernel: Elementwise,
        gradients: Sequence[int],
    ) -> int:
        """Fill the input on its stream and let the gradients go; the other stream waits."""
        if self.s.rules.keeps_reduce_input:
            slot = w.alloc(source, slot=w.shared(group.role, "reduce_input"))
            w.launch(kernel, group.last)
            w.free_all(reversed(gradients))
            w.wait_stream((Stream.REDUCE_SCATTER,), Stream.COMPUTE)
            return slot
        w.wait_stream((Stream.REDUCE_SCATTER,), Stream.COMPUTE)
        slot = w.alloc(source, Stream.REDUCE_SCATTER)
        w.launch(kernel, group.last, Stream.REDUCE_SCATTER)
        w.wait_stream((Stream.COMPUTE,), Stream.REDUCE_SCATTER)
        w.free_all(reversed(gradients))
        return slot

    def _reduce_scatter(self, w: BlockWriter, group: Group, size: int, micro: MicroStep) -> None:
        """The reduced shard becomes the gradients, or is cast to them, or is added to them."""
        becomes, retained = self.becomes_gradients(micro), self.retained(micro)
        category = Category.GRADIENTS if becomes else Category.REDUCE_SCATTER
        output = flat("reduced", group.numel, self.s.reduce, category, group.last)
        slot = None
        if becomes or retained:
            slot = w.shared(group.role, "reduced" if retained else "gradients")
        slot = w.alloc(output, Stream.REDUCE_SCATTER, slot=slot)
        self._scatter(w, group, size)
        w.record(w.event(group.role, "reduced"), Stream.REDUCE_SCATTER)
        after = Stream.REDUCE_SCATTER
        if self.s.replicas > 1:
            after = Stream.ALL_REDUCE
            self._all_reduce(w, group, output.requested)
        if self.s.reduce is not self.s.gradient:
            self._cast(w, group, slot, after, micro, retained=retained)
        elif not becomes:
            self._consume(w, output.requested, group, after)
            if not retained:
                w.free(slot)
        if self.in_backward is not None:
            self._step(w, group, after, micro, self.in_backward)
        w.record(w.event(group.role, "post_reduced"), after)

    def _step(
        self, w: BlockWriter, group: Group, stream: Stream, micro: MicroStep, optimizer: InBackward
    ) -> None:
        """Each parameter's hook; the gradients, views of one buffer, go when all have run."""
        for member in group.members:
            optimizer.step(w, member.shard, stream, member.home, first=micro.births)
        if not (self.retained(micro) and self.becomes_gradients(micro)):
            w.free(w.shared(group.role, "gradients"))

    def _scatter(self, w: BlockWriter, group: Group, size: int) -> None:
        if self.s.world == 1:
            w.launch(copy("reduce.copy", size, size), group.last, Stream.REDUCE_SCATTER)
            return
        w.collective(
            Collective(
                kind="reduce_scatter",
                bytes=size,
                group="dp_shard",
                stream=Stream.REDUCE_SCATTER,
                name=f"reduce_scatter {{{group.role}}}",
                module=group.last,
            )
        )

    def _all_reduce(self, w: BlockWriter, group: Group, size: int) -> None:
        """HSDP: the shard is summed over the replicas, on a stream of its own."""
        w.wait_stream((Stream.ALL_REDUCE,), Stream.REDUCE_SCATTER)
        w.collective(
            Collective(
                kind="all_reduce",
                bytes=size,
                group="dp_replicate",
                stream=Stream.ALL_REDUCE,
                name=f"all_reduce {{{group.role}}}",
                module=group.last,
            )
        )

    def _cast(
        self,
        w: BlockWriter,
        group: Group,
        reduced: int,
        stream: Stream,
        micro: MicroStep,
        *,
        retained: bool,
    ) -> None:
        """``_to_dtype_if_needed``."""
        becomes = not micro.summed and not self.s.offload
        tensor = flat("gradients", group.numel, self.s.gradient, Category.GRADIENTS, group.last)
        gradients = w.alloc(
            tensor, stream, slot=w.shared(group.role, "gradients") if becomes else None
        )
        read = group.numel * self.s.reduce.itemsize
        w.launch(copy("reduce_scatter.cast", read, tensor.requested), group.last, stream)
        if not retained:
            w.free(reduced)
        if not becomes:
            self._consume(w, tensor.requested, group, stream)
            w.free(gradients)

    def _consume(self, w: BlockWriter, size: int, group: Group, stream: Stream) -> None:
        """What was reduced is added to the gradients of before, or goes to the host."""
        kernel = copy("accumulate", 2 * size, size)
        if self.s.offload:
            kernel = Elementwise(name="download", kind="device_to_host", read=size, written=size)
        w.launch(kernel, group.last, stream)


def accumulated(w: BlockWriter, member: Member) -> int:
    """The slot of a parameter's gradient that was not reduced yet."""
    return w.shared(member.home, f"accumulated.{member.name}")
