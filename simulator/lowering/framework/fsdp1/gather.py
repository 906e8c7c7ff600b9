"""Unsharding and resharding (``FlatParamHandle.unshard``): one buffer, gathered into directly."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.lowering.framework.buffers import copy, flat
from simulator.lowering.framework.fsdp1.flat import FlatParameter
from simulator.lowering.framework.fsdp1.setting import Setting
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream, Tensor


class Gather:
    """Writes what happens to flat parameters."""

    def __init__(self, setting: Setting) -> None:
        self.s = setting

    def init_lazily(self, w: BlockWriter, parameters: Iterable[FlatParameter]) -> None:
        """``init_flat_param_attributes``: storages are made to be resized to nothing at once."""
        for parameter in parameters:
            category, dtypes = Category.UNSHARDED_PARAMETERS, [self.s.compute]
            if self._casts(parameter):
                w.free(w.alloc(self._cast_shard(parameter)))
                dtypes.append(parameter.stored)
            for dtype in dtypes:
                whole = flat("flat_param", parameter.padded, dtype, category, parameter.first)
                w.free(w.alloc(whole))

    def _casts(self, parameter: FlatParameter) -> bool:
        """Whether its shard is cast before it is gathered (``MixedPrecision.param_dtype``)."""
        return parameter.stored is not self.s.compute

    def unshard(
        self, w: BlockWriter, parameter: FlatParameter, limit: tuple[str, str] | None
    ) -> None:
        """``limit``: role and name of the event that the host waits for first."""
        shard, stored = parameter.shard, parameter.stored.itemsize
        cast = None
        if self._casts(parameter):
            tensor = self._cast_shard(parameter)
            cast = w.alloc(tensor, Stream.PRE_UNSHARD)
            kernel = copy("unshard.cast", shard * stored, tensor.requested)
            w.launch(kernel, parameter.first, Stream.PRE_UNSHARD)
            w.wait_stream((Stream.UNSHARD,), Stream.PRE_UNSHARD)
        self.hold_back(w, limit)
        category = Category.UNSHARDED_PARAMETERS
        whole = flat("flat_param", parameter.padded, self.s.compute, category, parameter.first)
        w.alloc(
            whole, Stream.UNSHARD, slot=w.shared(parameter.role, parameter.register("unsharded"))
        )
        w.collective(
            Collective(
                kind="all_gather",
                bytes=whole.requested,
                group="dp_shard",
                stream=Stream.UNSHARD,
                name=f"all_gather {{{parameter.role}}}",
                module=parameter.first,
            )
        )
        if cast is not None:
            w.free(cast)

    def hold_back(self, w: BlockWriter, limit: tuple[str, str] | None) -> None:
        """The rate limiter: the host stands until an earlier parameter was free to go."""
        if limit is not None:
            w.host_wait(w.event(*limit))

    def reshard(self, w: BlockWriter, parameter: FlatParameter, event: str) -> None:
        """``_reshard``: the buffer goes, and an event marks when the compute stream has read it."""
        w.free(w.shared(parameter.role, parameter.register("unsharded")))
        if self.s.limited:
            w.record(w.event(parameter.role, event), Stream.COMPUTE)

    def _cast_shard(self, parameter: FlatParameter) -> Tensor:
        return flat(
            "mp_shard", parameter.shard, self.s.compute, Category.ALL_GATHER, parameter.first
        )
