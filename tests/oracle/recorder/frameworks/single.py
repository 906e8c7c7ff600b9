"""No framework: the model on one GPU, as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn

from recorder.case import Case
from recorder.models import Built
from recorder.tracing.tracer import Tracer


class Single:
    """Nothing is wrapped, nothing is watched."""

    def __init__(self, case: Case) -> None:
        if case.ws != 1:
            raise ValueError("framework single: ws must be 1")

    def wrap(self, built: Built) -> nn.Module:
        """The model itself."""
        return built.root

    def started(self, module: nn.Module, tracer: Tracer) -> nn.Module:
        """The same."""
        return module

    @contextmanager
    def watched(self, tracer: Tracer) -> Iterator[None]:
        """There are no hooks."""
        yield

    def micro_step(self, module: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """All are alike."""
        return nullcontext()

    def label(self, module: nn.Module, tracer: Tracer) -> None:
        """Name the gradients that wait for the optimizer."""
        for parameter in module.parameters():
            if parameter.grad is not None:
                tracer.tag(parameter.grad, "sharded_grad")
