"""Data-parallel frameworks by name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
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


FRAMEWORKS = {
    "fsdp2": "fsdp2:Fsdp2",
    "fsdp1": "fsdp1:Fsdp1",
    "ddp": "ddp:Ddp",
    "single": "single:Single",
}
"""Name -> module and class; each is imported only where it is asked for."""


def framework_of(case: Case) -> Framework:
    """The case's framework.

    Raises:
        ValueError: none of that name.
    """
    if case.framework not in FRAMEWORKS:
        raise ValueError(f"no framework {case.framework!r}; there are {', '.join(FRAMEWORKS)}")
    module, _, name = FRAMEWORKS[case.framework].partition(":")
    made: Framework = getattr(import_module(f"recorder.frameworks.{module}"), name)(case)
    return made
