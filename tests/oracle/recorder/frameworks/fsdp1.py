"""FSDP1: ``FullyShardedDataParallel`` around each block, watched through its handles.

Options of a case: ``limit_all_gathers``, ``use_orig_params``, ``backward_prefetch`` (a name of
``BackwardPrefetch``, or None), ``keep_low_precision_grads`` and ``upcast`` (as accelerate stores
trained flat parameters: in fp32). ``wrap`` and ``reshard`` are as for FSDP2, and ``wrap`` ``peft``
gives each block and each trained leaf in it a unit of its own, as peft's ``fsdp_auto_wrap_policy``;
``prefetch_fwd`` is on or off. ``record_stream`` marks are not recorded: they delay when a
freed block may be used again, not what is live.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
import torch.distributed.fsdp._common_utils as common
import torch.distributed.fsdp._flat_param as flat_param
import torch.distributed.fsdp._init_utils as init
import torch.distributed.fsdp._runtime_utils as runtime
from torch import nn
from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import CustomPolicy

from recorder.case import Case
from recorder.fake.streams import DEVICE
from recorder.frameworks.fsdp2 import mesh_of, parts_of
from recorder.models import DTYPES, Built
from recorder.tracing.tracer import Tracer

MODULES = (common, flat_param, init, runtime)
STREAMS = ("unshard", "pre_unshard", "post_backward", "all_reduce")
BUFFERS = {
    "_local_shard": "sharded_param",
    "_mp_shard": "mp_shard",
    "_full_param_padded": "unsharded_param",
    "_full_prec_full_param_padded": "full_prec_unsharded",
}
"""A flat parameter's tensors and what they are."""

_real_streams = runtime._init_streams


class _Handle:
    """In place of FSDP1's own way to ask torch for a device."""

    @classmethod
    def from_device(cls, _: torch.device) -> Any:
        """The fake device."""
        return DEVICE


class Fsdp1:
    """One case's FSDP1."""

    def __init__(self, case: Case) -> None:
        self.case = case
        with ExitStack() as stack:
            _patch(stack)
            self._patches = stack.pop_all()

    def wrap(self, built: Built) -> nn.Module:
        """Wrap the parts, checkpointed or not, and the root."""
        option = self.case.option
        wrapped = self._wrapped(built)
        prefetch = option.get("backward_prefetch", "BACKWARD_PRE")
        root = FullyShardedDataParallel(
            built.root,
            auto_wrap_policy=CustomPolicy(lambda module: module in wrapped),
            sharding_strategy=self._strategy(),
            device_mesh=None if self.case.hsdp is None else mesh_of(self.case),
            limit_all_gathers=bool(option.get("limit_all_gathers", True)),
            forward_prefetch=bool(self.case.prefetch_fwd),
            backward_prefetch=None if prefetch is None else BackwardPrefetch[str(prefetch)],
            mixed_precision=self._precision(),
            use_orig_params=bool(option.get("use_orig_params", True)),
            device_id=torch.device("cuda", 0),
        )
        if option.get("upcast"):
            _upcast(root)
        return root

    def _wrapped(self, built: Built) -> set[nn.Module]:
        if self.case.wrap == "peft":
            return set(built.blocks) | {leaf for leaf in built.root.modules() if _is_trained(leaf)}
        parts = parts_of(self.case.wrap)
        wrapped = set(built.blocks) if "blocks" in parts else set()
        return wrapped | {built.embedding} if "embedding" in parts else wrapped

    def _strategy(self) -> ShardingStrategy:
        if self.case.hsdp is None:
            return ShardingStrategy["FULL_SHARD" if self.case.reshard else "SHARD_GRAD_OP"]
        return ShardingStrategy["HYBRID_SHARD" if self.case.reshard else "_HYBRID_SHARD_ZERO2"]

    def _precision(self) -> MixedPrecision | None:
        if self.case.param_dtype is None:
            return None
        return MixedPrecision(
            param_dtype=DTYPES[self.case.param_dtype],
            reduce_dtype=DTYPES[self.case.reduce_dtype],
            keep_low_precision_grads=bool(self.case.option.get("keep_low_precision_grads", False)),
        )

    def started(self, module: nn.Module, tracer: Tracer) -> nn.Module:
        """All is wrapped already; original parameters may be views of what was upcast."""
        for part in FullyShardedDataParallel.fsdp_modules(module):
            if part._has_params:
                tracer.tag(part._flat_param, "sharded_param")
        return module

    @contextmanager
    def watched(self, tracer: Tracer) -> Iterator[None]:
        """FSDP1's hooks have no marks; its streams and device stay fake until the run ends."""
        with self._patches:
            yield

    def micro_step(self, module: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Without sync, ``no_sync`` around all but the last micro-step."""
        return nullcontext() if last or self.case.ga_sync else module.no_sync()

    def label(self, module: nn.Module, tracer: Tracer) -> None:
        """Name the flat parameters' tensors and the gradients."""
        for part in FullyShardedDataParallel.fsdp_modules(module):
            flat = part._handle.flat_param if part._handle is not None else None
            for name, category in BUFFERS.items():
                tensor = getattr(flat, name, None)
                if tensor is not None:
                    tracer.tag(tensor, category)
        for parameter in module.parameters():
            if parameter.grad is not None:
                tracer.tag(parameter.grad, "sharded_grad")


def _is_trained(module: nn.Module) -> bool:
    """Whether peft's policy wraps it for its weight."""
    weight = getattr(module, "weight", None)
    return not list(module.children()) and weight is not None and weight.requires_grad


def _upcast(root: nn.Module) -> None:
    """As ``Accelerator.prepare_model`` does before anything is initialised lazily."""
    for part in FullyShardedDataParallel.fsdp_modules(root):
        if part._has_params and part._flat_param.requires_grad:
            part._flat_param.data = part._flat_param.data.to(torch.float32)
            part._handle._orig_param_dtype = torch.float32


def _patch(stack: ExitStack) -> None:
    for module in MODULES:
        for name, value in (
            ("_FSDPDeviceHandle", _Handle),
            ("_no_dispatch_record_stream", lambda *_: None),
            ("_init_streams", _named_streams),
            # fake storages have no addresses
            ("_data_ptr_allocated", lambda tensor: tensor.untyped_storage().size() > 0),
            ("_same_storage", lambda one, other: _cdata(one) == _cdata(other)),
            ("_catch_all_reshard", _catch_all_reshard),
        ):
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, value))


def _catch_all_reshard(state: Any) -> None:
    """torch's, which compares addresses: what is not yet resharded when backward ends."""
    handle = state._handle
    if handle and _cdata(handle.flat_param) != _cdata(handle.flat_param._local_shard):
        runtime._reshard(state, handle, runtime._should_free_in_backward(state, handle))


def _cdata(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _named_streams(state: Any) -> None:
    _real_streams(state)
    for name in STREAMS:
        stream = getattr(state, f"_{name}_stream", DEVICE.default)
        if stream is not DEVICE.default:
            stream.name = name
