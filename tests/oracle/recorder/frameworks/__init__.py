"""Data-parallel frameworks by name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import nn

from recorder.case import Case
from recorder.models import Built
from recorder.tracing.tracer import Tracer


class Framework(Protocol):
    """What the training loop needs of a framework."""

    def wrap(self, built: Built) -> nn.Module:
        """The module that training calls."""

    def started(self, module: nn.Module, tracer: Tracer) -> nn.Module:
        """The same, for a framework that allocates as it wraps: called once recording goes on."""

    def watched(self, tracer: Tracer) -> AbstractContextManager[None]:
        """While entered, the framework's buffers are named and its hooks marked."""

    def micro_step(self, module: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of a micro-step; ``last``: the optimizer follows."""

    def label(self, module: nn.Module, tracer: Tracer) -> None:
        """Name what the framework keeps, where it gives no occasion to when it is made."""


def framework_of(case: Case) -> Framework:
    """The case's framework.

    Raises:
        ValueError: none of that name.
    """
    if case.framework == "fsdp2":
        from recorder.frameworks.fsdp2 import Fsdp2

        return Fsdp2(case)
    if case.framework == "fsdp1":
        from recorder.frameworks.fsdp1 import Fsdp1

        return Fsdp1(case)
    if case.framework == "ddp":
        from recorder.frameworks.ddp import Ddp

        return Ddp(case)
    raise ValueError(f"no framework {case.framework!r}; there are fsdp2, fsdp1, ddp")
