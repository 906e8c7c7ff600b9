"""Rank 0 of a job of any size, alone: torch's fake process group and the fake device."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.fsdp._fully_shard._fsdp_collectives as collectives
import torch.distributed.fsdp._fully_shard._fsdp_init as init
import torch.distributed.fsdp._fully_shard._fsdp_param_group as param_group
import torch.distributed.fsdp._fully_shard._fsdp_state as state
import torch.distributed.fsdp._fully_shard._fully_shard as fully_shard
import torch.distributed.tensor._random as tensor_random
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore

from recorder.fake.streams import DEVICE

ASKS_FOR_A_DEVICE: tuple[ModuleType, ...] = (*(device_mesh, collectives, init, param_group, state),)
STREAMS = ("all_gather_copy_in", "all_gather", "reduce_scatter", "all_reduce")
_real_streams = param_group.FSDPCommContext.lazy_init
_real_mesh_info = fully_shard._get_post_forward_mesh_info


def install() -> None:
    """Hand the fake device to whoever asks torch for CUDA."""
    for module in ASKS_FOR_A_DEVICE:
        module._get_device_handle = _handle
    torch.accelerator.current_stream = DEVICE.current_stream
    tensor_random.is_rng_supported_mesh = lambda mesh: False
    param_group.FSDPCommContext.lazy_init = _named_streams
    fully_shard._get_post_forward_mesh_info = _mesh_info


def join(world: int) -> None:
    """Become rank 0 of ``world`` ranks."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())


def _handle(kind: str = "cuda") -> Any:
    return DEVICE if kind == "cuda" else getattr(torch, kind, None)


def _named_streams(context: param_group.FSDPCommContext, device: torch.device) -> None:
    _real_streams(context, device)
    for name in STREAMS:
        getattr(context, f"{name}_stream").name = name


def _mesh_info(*args: Any, **kwargs: Any) -> Any:
    """A mesh is made of real tensors of ranks, even while all else is fake."""
    with unset_fake_temporarily():
        return _real_mesh_info(*args, **kwargs)
