"""What is known of one GPU: usable memory, rates, and where each number comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU model. Rates are per second; memory in bytes.

    ``family`` names the efficiency curves that hold for it. ``usable_bytes`` is what a process
    can hold at all (``torch.cuda`` total_memory), not the label. ``peak_flops`` are dense peaks.
    ``power_watts`` is the cap it runs under, ``tdp_watts`` what the vendor designed for.
    ``host_bytes_per_s`` is what copies from and to its host's memory reach while all GPUs of its
    node copy; 0 where it stands in no node.
    """

    name: str
    family: str
    usable_bytes: int
    hbm_bytes_per_s: float
    peak_flops: Mapping[DType, float]
    sms: int
    tdp_watts: float
    power_watts: float
    source: str
    notes: str = ""
    host_bytes_per_s: float = 0.0
