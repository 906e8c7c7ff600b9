"""Unsharding and resharding: ``foreach_all_gather``, its copy-out, and what is freed when."""

from __future__ import annotations

from simulator.kernels import Elementwise
from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.fsdp2.float8 import cast_shards
from simulator.lowering.framework.fsdp2.groups import Group, Member, Setting
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream

GATHERING = (Stream.ALL_GATHER_COPY_IN, Stream.ALL_GATHER)
COPY_IN = Stream.ALL_GATHER_COPY_IN


class Gather:
    """Writes the gathering of groups; ``kept`` below is the k of ``reshard_after_forward=k``."""

    def __init__(self, setting: Setting) -> None:
        self.s = setting

    def unshard(self, w: BlockWriter, group: Group, kept: int | None = None) -> None:
        """``foreach_all_gather``: cast, copy in, gather; the input is a slice of the output.

        Alone in the world a group has nothing to gather, though older releases make the buffer all
        the same. ``kept``: gather the slices that forward left over so many ranks.
        """
        if not self.s.gathers:
            return
        ranks = kept or self.s.world
        size = self.s.gathered_bytes(group)
        local = size // ranks
        inputs = self._inputs(w, group, kept)
        w.alloc(
            flat(
                "gathered",
                size // self.s.compute.itemsize,
                self.s.compute,
                Category.ALL_GATHER,
                group.first,
            ),
            COPY_IN,
            slot=w.shared(group.role, "gathered"),
        )
        w.launch(copy("all_gather.copy_in", local, local), group.first, COPY_IN)
        w.free_all(reversed(inputs))
        w.wait_stream((Stream.ALL_GATHER,), COPY_IN)
        if ranks > 1:
            w.collective(
                Collective(
                    kind="all_gather",
                    bytes=size,
                    group="dp_shard" if kept is None else f"dp_shard:{kept}",
                    stream=Stream.ALL_GATHER,
                    name=f"all_gather {{{group.role}}}",
                    module=group.first,
                )
            )
        w.record(w.event(group.role, "all_gathered"), Stream.ALL_GATHER)

    def _inputs(self, w: BlockWriter, group: Group, kept: int | None) -> list[int]:
        """Temporaries that hold the all-gather's inputs until they are copied in."""
        if self.s.offload:
            return [self._upload(w, member) for member in group.members]
        float8 = cast_shards(w, self.s, group)
        if not self.s.rules.casts_together:
            # a slice has the computed dtype already
            alike = [] if kept else [m for m in group.members if self.s.casts_one(m.shard.weight)]
            return [*float8, *(self._cast(w, member) for member in alike)]
        # one flat buffer for all else that is cast, filled by a foreach copy (``use_foreach_copy``)
        cast = sum(m.shard.padded for m in group.members if self.s.casts_one(m.shard.weight))
        numel = cast // (kept or self.s.world)
        if not numel:
            return float8
        local = numel * self.s.compute.itemsize
        read = local if kept else numel * self.s.stored.itemsize
        buffer = flat("cast_shard", numel, self.s.compute, Category.ALL_GATHER, group.first)
        slot = w.alloc(buffer, COPY_IN)
        w.launch(copy("all_gather.cast", read, local), group.first, COPY_IN)
        return [*float8, slot]

    def _cast(self, w: BlockWriter, member: Member) -> int:
        """``FSDPParam.all_gather_inputs``: one shard in the computed dtype."""
        shard, module = member.shard, member.shard.weight.module
        compute, stored = self.s.compute_of(shard.weight), self.s.stored_of(shard.weight)
        cast = flat(f"{member.name}.cast", shard.numel, compute, Category.ALL_GATHER, module)
        slot = w.alloc(cast, COPY_IN)
        size = shard.numel * stored.itemsize
        w.launch(copy("all_gather.cast", size, cast.requested), module, COPY_IN)
        return slot

    def _upload(self, w: BlockWriter, member: Member) -> int:
        """CPU offload: a shard goes to the device in its stored dtype and is cast there."""
        shard, module = member.shard, member.shard.weight.module
        stored = self.s.stored_of(shard.weight)
        upload = flat(f"{member.name}.upload", shard.numel, stored, Category.ALL_GATHER, module)
        slot = w.alloc(upload, COPY_IN)
        size = upload.requested
        w.launch(
            Elementwise(name="upload", kind="host_to_device", read=size, written=size),
            module,
            COPY_IN,
        )
        if not self.s.casts:
            return slot
        cast = self._cast(w, member)
        w.free(slot)
        return cast

    def copy_out(self, w: BlockWriter, group: Group, *, sliced: bool = False) -> None:
        """``foreach_all_gather_copy_out``: one storage a parameter, filled by one split copy.

        ``sliced``: the slices that forward had kept go once the parameters are whole.
        """
        if not self.s.gathers:
            self._copy_local(w, group)
        else:
            w.wait(w.event(group.role, "all_gathered"), Stream.COMPUTE)
            size = sum(self._alloc_unsharded(w, member) for member in group.members)
            w.launch(copy("all_gather.copy_out", size, size), group.first)
        if sliced:
            w.free_all(w.shared(m.home, f"slice.{m.name}") for m in group.members)
        w.record(w.event(group.role, "copied_out"), Stream.COMPUTE)

    def _copy_local(self, w: BlockWriter, group: Group) -> None:
        """World size 1: each parameter is cast and copied; a cast lives until the next is made.

        ``wait_for_unshard`` since torch 2.9.
        """
        before = None
        for member in group.members:
            shard, module, cast = member.shard, member.shard.weight.module, None
            local = shard.numel * self.s.compute_of(shard.weight).itemsize
            if self.s.casts:
                name = f"{member.name}.cast"
                cast = w.alloc(flat(name, shard.numel, self.s.compute, Category.ALL_GATHER, module))
                read = shard.numel * self.s.stored.itemsize
                w.launch(copy("unshard.cast", read, local), module)
                if before is not None:
                    w.free(before)
            self._alloc_unsharded(w, member)
            w.launch(copy("unshard.copy", local, local), module)
            before = cast
        if before is not None:
            w.free(before)

    def _alloc_unsharded(self, w: BlockWriter, member: Member) -> int:
        """Allocate one gathered parameter; returns its bytes."""
        category, weight = Category.UNSHARDED_PARAMETERS, member.shard.weight
        dtype = self.s.compute_of(weight)
        tensor = flat(member.name, member.shard.padded, dtype, category, weight.module)
        w.alloc(tensor, slot=w.shared(member.home, f"unsharded.{member.name}"))
        return tensor.requested

    def drop_gathered(self, w: BlockWriter, role: str) -> None:
        """Free a group's all-gather output."""
        if self.s.gathers:
            w.free(w.shared(role, "gathered"))

    def reshard(self, w: BlockWriter, group: Group) -> None:
        """Free the gathered parameters."""
        w.free_all(w.shared(m.home, f"unsharded.{m.name}") for m in group.members)

    def reshard_to_slices(self, w: BlockWriter, group: Group, kept: int) -> None:
        """``_to_sharded_post_forward``: keep a copy of 1/kept of each parameter, free the rest."""
        for member in group.members:
            category, weight = Category.UNSHARDED_PARAMETERS, member.shard.weight
            module, dtype = weight.module, self.s.compute_of(weight)
            numel = member.shard.padded // kept
            tensor = flat(f"{member.name}.slice", numel, dtype, category, module)
            w.alloc(tensor, slot=w.shared(member.home, f"slice.{member.name}"))
            w.launch(copy("reshard.slice", tensor.requested, tensor.requested), module)
            w.free(w.shared(member.home, f"unsharded.{member.name}"))
        w.record(w.event(group.role, "resharded"), Stream.COMPUTE)
