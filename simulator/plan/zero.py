"""DeepSpeed's knobs, by its own names (``deepspeed/runtime/zero/config.py``, 0.19)."""

from __future__ import annotations

from dataclasses import dataclass

BUILT_ON = ("cpu", "cuda", "zero-init")
"""What ``Zero.built_on`` may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero:
    """``zero_optimization`` of DeepSpeed's configuration; sizes are in elements.

    ``built_on``: where modules are, before the engine casts and moves them: on the ``cpu``, on
    ``cuda``, in fp32, or, under ``deepspeed.zero.Init``, cut as they are made (``zero-init``).
    """

    stage: int = 0
    overlap_comm: bool = False
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    round_robin_gradients: bool = False
    reduce_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000
    allgather_sequential: bool = False
    built_on: str = "cpu"
    offload_optimizer: bool = False
    offload_param: bool = False


NO_ZERO = Zero()
"""DeepSpeed's own defaults: stage 0."""
