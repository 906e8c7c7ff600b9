"""The header of a trace: every fact a view or a Result needs beside the columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Bytes that are known roughly: the usual size, and what was seen at the ends."""

    low: int
    usual: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a process holds of its GPU beside the allocator's segments."""

    context: Spread
    nccl: Spread

    @property
    def usual(self) -> int:
        """Both, as they usually are."""
        return self.context.usual + self.nccl.usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Facts of one run. Tokens and FLOPs are per rank and step; peaks are per GPU and second.

    ``model_flops``: 6 per matmul parameter and token + 12·L·h·s a token of attention, as
    torchtitan counts, less what frozen weights spare; ``hardware_flops``: what the kernels do,
    recompute included. ``outside`` is None where no allocator was simulated. ``at_least``: part of
    a step is not timed, so its time is a lower bound.
    """

    scenario: str
    version: str
    seed: int
    steps: int
    world_size: int
    device_names: tuple[str, ...]
    gpu: str
    device_bytes: int
    reserved_by_others: int
    parameters: int
    trained_parameters: int
    tokens: int
    model_flops: int
    hardware_flops: int
    peak_flops: float
    outside: Outside | None = None
    warnings: tuple[str, ...] = ()
    at_least: bool = False
