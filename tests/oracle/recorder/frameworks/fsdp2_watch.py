"""Watching FSDP2: marks on both sides of its hooks, and names for its buffers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch.distributed.fsdp._fully_shard._fsdp_collectives as collectives
import torch.distributed.fsdp._fully_shard._fsdp_param_group as param_group

from recorder.tracing.tracer import Tracer

Group = param_group.FSDPParamGroup
BOUNDARIES = {
    "pre_forward": "pre_fwd",
    "post_forward": "post_fwd",
    "pre_backward": "pre_bwd",
    "post_backward": "post_bwd",
}
"""The hooks that a mark stands on both sides of, and the marks' names."""


def watch(stack: ExitStack, tracer: Tracer) -> None:
    """Patch FSDP2 until the stack is closed."""
    for name, mark in BOUNDARIES.items():
        _patch(stack, Group, name, _bounded(getattr(Group, name), mark, tracer))
    _gathering(stack, tracer)
    _reduction(stack, tracer)


def _patch(stack: ExitStack, owner: Any, name: str, value: Callable[..., Any]) -> None:
    stack.enter_context(mock.patch.object(owner, name, value))


def _bounded(hook: Callable[..., Any], mark: str, tracer: Tracer) -> Callable[..., Any]:
    def wrapped(group: Any, *args: Any, **kwargs: Any) -> Any:
        tracer.module = group._module_fqn or "root"
        tracer.mark(f"{mark}.begin:{tracer.module}")
        result = hook(group, *args, **kwargs)
        tracer.mark(f"{mark}.end:{tracer.module}")
        return result

    return wrapped


def _gathering(stack: ExitStack, tracer: Tracer) -> None:
    gather, copy_out = param_group.foreach_all_gather, param_group.foreach_all_gather_copy_out

    def gathering(*args: Any, **kwargs: Any) -> Any:
        with tracer.category("ag_cast_shard"):
            result = gather(*args, **kwargs)
        tracer.tag(result.all_gather_output, "all_gather_out")
        return result

    def copying_out(*args: Any, **kwargs: Any) -> Any:
        with tracer.category("unsharded_param"):
            return copy_out(*args, **kwargs)

    _patch(stack, param_group, "foreach_all_gather", gathering)
    _patch(stack, param_group, "foreach_all_gather_copy_out", copying_out)


def _reduction(stack: ExitStack, tracer: Tracer) -> None:
    reduce, allocate = param_group.foreach_reduce, collectives.DefaultReduceScatter.allocate
    names: list[str] = []

    def allocating(self: Any, *args: Any, **kwargs: Any) -> Any:
        with tracer.category(names.pop()):
            return allocate(self, *args, **kwargs)

    def reducing(parameters: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        for gradient in gradients:
            tracer.tag(gradient, "unsharded_grad")
        names[:] = ["rs_output", "rs_input"]  # the input is asked for first
        with tracer.category("sharded_grad"):
            result = reduce(parameters, gradients, *args, **kwargs)
        for parameter in parameters:
            if parameter.sharded_param.grad is not None:
                tracer.tag(parameter.sharded_param.grad, "sharded_grad")
        return result

    _patch(stack, param_group, "foreach_reduce", reducing)
    _patch(stack, collectives.DefaultReduceScatter, "allocate", allocating)
