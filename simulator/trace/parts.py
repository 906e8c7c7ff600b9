"""The parts of a result, each with the JSON it becomes: bytes and seconds, None where unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from simulator.trace.header import Outside
from simulator.trace.memory import AllocatorReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """The peak of one phase of one step, bytes; ``reserved`` is None without an allocator."""

    step: int
    phase: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    at: str
    tensor: str
    breakdown: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        """The entry of ``memory.phases``."""
        return {
            "step": self.step,
            "phase": self.phase,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "at": self.at,
            "breakdown": dict(self.breakdown),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResult:
    """Peaks over all ranks and where the highest is, in bytes.

    ``fits`` compares ``counter`` with ``usable_bytes``: the device less what others hold.
    Reserved and device are None without an allocator, active where it would need a clock,
    the host's peak where it is not modelled. ``device`` is reserved and what lies outside the
    allocator, as it usually is.
    """

    device_bytes: int
    usable_bytes: int
    peak_allocated_bytes: int
    peak_active_bytes: int | None
    peak_rank: int
    peak_step: int
    peak_phase: str
    peak_at: str
    peak_tensor: str
    breakdown_at_peak: Mapping[str, int]
    phases: tuple[PhaseResult, ...]
    counter: str = "allocated"
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    host_peak_bytes: int | None = None

    allocator: AllocatorReport | None = None
    outside: Outside | None = None

    @property
    def peak_bytes(self) -> int:
        """The peak of ``counter``."""
        device = self.peak_device_bytes
        return self.peak_allocated_bytes if device is None else device

    @property
    def headroom_bytes(self) -> int:
        """What is left of the usable bytes at the peak; negative: what is missing."""
        return self.usable_bytes - self.peak_bytes

    @property
    def fits(self) -> bool:
        """Whether the peak stays within the usable bytes."""
        return self.headroom_bytes >= 0

    def to_json(self) -> dict[str, object]:
        """The object under ``memory``."""
        return {
            "device_bytes": self.device_bytes,
            "fits": self.fits,
            "headroom_bytes": self.headroom_bytes,
            "counter": self.counter,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_active_bytes": self.peak_active_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "peak_device_bytes": self.peak_device_bytes,
            "host_peak_bytes": self.host_peak_bytes,
            "peak_rank": self.peak_rank,
            "peak_step": self.peak_step,
            "peak_phase": self.peak_phase,
            "peak_at": self.peak_at,
            "breakdown_at_peak": dict(self.breakdown_at_peak),
            "phases": [phase.to_json() for phase in self.phases],
            "allocator": None if self.allocator is None else _allocator(self.allocator),
            "outside": None if self.outside is None else _outside(self.outside),
        }


def _allocator(report: AllocatorReport) -> dict[str, object]:
    """The object under ``memory.allocator``."""
    shortage = report.shortage
    return {
        "settings": report.settings,
        "peak_step": report.peak_step,
        "peak_phase": report.peak_phase,
        "peak_at": report.peak_at,
        "retries": list(report.retries),
        "out_of_memory": None if shortage is None else asdict(shortage),
        "peak_reserved_bytes_under": dict(report.others),
    }


def _outside(outside: Outside) -> dict[str, object]:
    """The object under ``memory.outside``: bytes [low, usual, high] of each part."""
    return {
        f"{name}_bytes": [spread.low, spread.usual, spread.high]
        for name, spread in (("context", outside.context), ("nccl", outside.nccl))
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeResult:
    """The last step by what the slowest ranks' compute stream does, seconds: the critical path.

    The parts are disjoint and add up to the step; all None without a timeline.
    """

    compute_s: float | None = None
    exposed_communication_s: float | None = None
    bubble_s: float | None = None
    host_s: float | None = None
    optimizer_s: float | None = None
    offload_s: float | None = None
    idle_s: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """The object under ``time``."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """One rank: its class, its device, its peak in bytes and its last step in seconds."""

    rank: int
    rank_class: int
    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    step_time_s: float | None

    def to_json(self) -> dict[str, object]:
        """The entry of ``ranks``."""
        return {
            "rank": self.rank,
            "class": self.rank_class,
            "device": self.device,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "step_time_s": self.step_time_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResult:
    """How much work the simulation was."""

    classes: int
    events: int = 0
    launches: int = 0
    collectives: int = 0

    def to_json(self) -> dict[str, int]:
        """The object under ``engine``."""
        return {name: getattr(self, name) for name in self.__slots__}
