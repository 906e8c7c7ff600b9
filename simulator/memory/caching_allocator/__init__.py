"""PyTorch's CUDA caching allocator, to the constant.

Source of every rule and constant in this room: c10/cuda/CUDACachingAllocator.cpp
(``DeviceCachingAllocator``), c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h of
torch 2.13. Held against that library's own answers in ``tests/memory/test_caching_allocator.py``.
"""

from simulator.memory.caching_allocator.allocator import (
    CachingAllocator,
    Counters,
    OutOfMemoryError,
)
from simulator.memory.caching_allocator.device import Device
from simulator.memory.caching_allocator.settings import Settings

__all__ = ["CachingAllocator", "Counters", "Device", "OutOfMemoryError", "Settings"]
