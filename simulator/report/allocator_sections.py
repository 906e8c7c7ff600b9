"""What the GPU holds in all, as nvidia-smi shows it, and what the caching allocator had to do."""

from __future__ import annotations

from simulator.report.table import Section, bar
from simulator.report.words import gib, percent
from simulator.trace.header import Spread
from simulator.trace.memory import AllocatorReport, Shortage
from simulator.trace.result import Result
from simulator.units import format_bytes


def on_device(result: Result) -> Section | None:
    """From allocated to what the device shows; nothing without an allocator."""
    memory, outside = result.memory, result.memory.outside
    if memory.allocator is None or outside is None or memory.peak_device_bytes is None:
        return None
    cached = memory.allocator.peak_reserved - memory.peak_allocated_bytes
    total = memory.peak_device_bytes
    rows = [
        _row("allocated, at its peak", memory.peak_allocated_bytes, total),
        _row("reserved beyond it", cached, total),
        _row("CUDA context", outside.context.usual, total, _between(outside.context)),
        _row("NCCL's buffers", outside.nccl.usual, total, _between(outside.nccl)),
        ("on the GPU", gib(total, 2), "", "", "nvidia-smi's figure"),
    ]
    return Section(
        title="What the GPU holds",
        align="lrrll",
        headers=("", "GiB", "share", "", ""),
        rows=tuple(rows),
        notes=tuple(_notes(memory.allocator)),
        total=True,
    )


def _row(name: str, size: int, total: int, words: str = "") -> tuple[str, ...]:
    return name, gib(size, 2), percent(size, total, 1), bar(size / total, 16), words


def _between(spread: Spread) -> str:
    """How roughly it is known."""
    if spread.low == spread.high:
        return ""
    return f"{gib(spread.low, 2)} to {gib(spread.high, 2)} were seen"


def _notes(allocator: AllocatorReport) -> list[str]:
    """Reserved and its settings, the first failure, the retries."""
    reserved = gib(allocator.peak_reserved, 2)
    notes = [
        f"Reserved is {reserved} GiB under {_settings(allocator.settings)}, the most in step "
        f"{allocator.peak_step}, {allocator.peak_phase}, where {allocator.peak_at} allocates "
        f"{allocator.peak_tensor}."
    ]
    notes += [
        f"It would be {gib(size, 2)} GiB under {_settings(other)}; say which the job has with "
        "launcher: or allocator:."
        for other, size in allocator.others.items()
    ]
    if sum(allocator.retries):
        notes.append(_retries(allocator))
    if allocator.shortage is not None:
        notes.append(out_of_memory(allocator.shortage))
    return notes


def _settings(text: str) -> str:
    return text or "PyTorch's default settings"


def _retries(allocator: AllocatorReport) -> str:
    steps = ", ".join(
        f"{times} in step {step}" for step, times in enumerate(allocator.retries) if times
    )
    return (
        f"Near the limit: the allocator gave all that it cached back to find room ({steps}). Each "
        "such retry waits for the GPU; that time is not in the step."
    )


def out_of_memory(shortage: Shortage) -> str:
    """The first request that found no room, with the figures of PyTorch's own message.

    >>> request = {"requested": 2**31, "free": 2**30, "reserved": 70 * 2**30}
    >>> where = {"step": 0, "phase": "forward", "at": "head", "tensor": "logits"}
    >>> print(out_of_memory(Shortage(**where, **request, allocated=69 * 2**30))[:91])
    Out of memory in step 0, forward: head tries to allocate 2.00 GiB (logits), and 1.00 GiB is
    """
    unallocated = shortage.reserved - shortage.allocated
    return (
        f"Out of memory in step {shortage.step}, {shortage.phase}: {shortage.at} tries to allocate "
        f"{format_bytes(shortage.requested)} ({shortage.tensor}), and {format_bytes(shortage.free)}"
        f" is free. {format_bytes(shortage.allocated)} is allocated by PyTorch, and "
        f"{format_bytes(unallocated)} is reserved by PyTorch but unallocated. From there on the "
        "run is shown as if there were room."
    )
