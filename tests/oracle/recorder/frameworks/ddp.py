"""DDP: the C++ reducer, with its buckets.

Options of a case: ``bucket_cap_mb`` and ``gradient_as_bucket_view``. After its first reduction the
reducer builds its buckets anew and reads addresses, of which fake tensors have none: only the last
micro-step of a run is reduced. A communication hook hands each bucket back, as an all-reduce would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recorder.case import STEPS, Case
from recorder.models import Built
from recorder.tracing.tracer import Tracer


class _Quiet:
    """In place of DDP's logger, which asks a real device for times."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


class Ddp:
    """One case's DDP."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._left = STEPS * case.grad_accum

    def wrap(self, built: Built) -> nn.Module:
        """Nothing yet: the reducer allocates its buckets, so it is made while recording."""
        return built.root

    def started(self, module: nn.Module, tracer: Tracer) -> nn.Module:
        """Make the reducer."""
        option = self.case.option
        with tracer.category("ddp_bucket"):
            wrapped = DistributedDataParallel(
                module,
                bucket_cap_mb=option.get("bucket_cap_mb", 25),
                gradient_as_bucket_view=bool(option.get("gradient_as_bucket_view", False)),
                broadcast_buffers=False,
                init_sync=False,
            )
        wrapped.register_comm_hook(None, _hand_back)
        wrapped.logger = _Quiet()
        tracer.mark("ddp_init")
        return wrapped

    @contextmanager
    def watched(self, tracer: Tracer) -> Iterator[None]:
        """The reducer is C++: there is nothing to watch."""
        yield

    def micro_step(self, module: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """All but the run's last go without a reduction."""
        self._left -= 1
        return module.no_sync() if self._left else nullcontext()

    def label(self, module: nn.Module, tracer: Tracer) -> None:
        """Gradients are autograd's own, or views of buckets that have their name."""


def _hand_back(_, bucket):  # type: ignore[no-untyped-def]  # DDP checks what annotations say
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
