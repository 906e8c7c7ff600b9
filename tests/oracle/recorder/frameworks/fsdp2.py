"""FSDP2: ``fully_shard``, watched at its hooks.

``wrap``: ``titan`` (embedding, each block, [norm, head]), ``block_root`` (each block; the root
keeps the rest), ``none`` (the root keeps all), or modules of ``embedding``, ``blocks`` and ``head``
by those names. ``titan_oldlast`` and ``oldtitan`` are the first two with the last block never
resharded, as torchtitan had it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from recorder.case import Case
from recorder.frameworks.fsdp2_watch import watch
from recorder.models import DTYPES, Built
from recorder.tracing.tracer import Tracer

WRAPS = {
    "titan": ("embedding", "blocks", "head"),
    "titan_oldlast": ("embedding", "blocks", "head"),
    "block_root": ("blocks",),
    "oldtitan": ("blocks",),
    "none": (),
}


class Fsdp2:
    """One case's FSDP2."""

    def __init__(self, case: Case) -> None:
        self.case = case
        policy = MixedPrecisionPolicy(
            param_dtype=DTYPES[case.param_dtype], reduce_dtype=DTYPES[case.reduce_dtype]
        )
        self._options: dict[str, Any] = {"mesh": mesh_of(case), "mp_policy": policy}
        if case.cpu_offload:
            self._options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)

    def wrap(self, built: Built) -> nn.Module:
        """Shard the model in place."""
        wrap, reshard = self.case.wrap, self.case.reshard
        parts = parts_of(wrap)
        last_stays = wrap in ("titan_oldlast", "oldtitan")
        if "embedding" in parts:
            fully_shard(built.embedding, reshard_after_forward=reshard, **self._options)
        for number, block in enumerate(built.blocks if "blocks" in parts else (), 1):
            stays = last_stays and number == len(built.blocks)
            after = False if stays else reshard
            fully_shard(block, reshard_after_forward=after, **self._options)
        if "head" in parts:
            fully_shard(built.head, reshard_after_forward=False, **self._options)
        fully_shard(built.root, **self._options)
        self._prefetch(built.blocks)
        return built.root

    def _prefetch(self, blocks: nn.ModuleList) -> None:
        ahead = self.case.prefetch_fwd
        for index in range(len(blocks) - 1 if ahead else 0):
            following = list(blocks[index + 1 : index + 1 + ahead])
            blocks[index].set_modules_to_forward_prefetch(following)

    def started(self, module: nn.Module, tracer: Tracer) -> nn.Module:
        """All is sharded already."""
        return module

    @contextmanager
    def watched(self, tracer: Tracer) -> Iterator[None]:
        """Marks at the hooks, and names for FSDP2's buffers."""
        with ExitStack() as stack:
            watch(stack, tracer)
            yield

    def micro_step(self, module: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Without sync, all but the last micro-step leave their gradients unreduced."""
        if self.case.grad_accum > 1:
            module.set_requires_gradient_sync(self.case.ga_sync or last)
            module.set_reshard_after_backward(self.case.reshard_after_backward or last)
        return nullcontext()

    def label(self, module: nn.Module, tracer: Tracer) -> None:
        """All that lives longer than a hook is named where it is made."""


def parts_of(wrap: str | tuple[str, ...]) -> tuple[str, ...]:
    """The parts that get a ``fully_shard`` of their own.

    Raises:
        ValueError: no such wrapping or part.
    """
    parts = WRAPS.get(wrap, (wrap,)) if isinstance(wrap, str) else wrap
    unknown = set(parts) - set(WRAPS["titan"])
    if unknown:
        raise ValueError(f"wrap: no {sorted(unknown)}; there are {', '.join(WRAPS)}, or parts")
    return parts


def mesh_of(case: Case) -> DeviceMesh:
    """The mesh of a case's ranks."""
    shape = (case.ws,) if case.hsdp is None else (case.hsdp, case.ws // case.hsdp)
    names = ("replicate", "shard")[-len(shape) :]
    with unset_fake_temporarily():  # a mesh reads its ranks from a real tensor
        return init_device_mesh("cuda", shape, mesh_dim_names=names)
