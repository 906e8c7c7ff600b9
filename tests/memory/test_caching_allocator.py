"""The allocator against PyTorch's own, step by step, and against a ledger that can't be wrong.

``tests/data/allocator_runs.json.gz``: random runs under 24 settings; ``allocator_traces.json.gz``:
the requests of whole FSDP2 runs under 34. Both were answered by torch 2.13's own library.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.errors import UserError
from simulator.memory.caching_allocator import CachingAllocator, Device, OutOfMemoryError, Settings
from simulator.memory.caching_allocator.block import Block
from tests.recorded import DATA

COUNTERS = ("allocated", "reserved", "active", "requested", "retries", "segments")
GIB = 1 << 30


@cache
def data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((DATA / name).read_bytes()))
    return found


def segments(allocator: CachingAllocator, held: Iterable[Block]) -> list[list[Any]]:
    """[stream, "S" or "L", bytes, [[block bytes, 0 free | 1 in use | 2 waiting], ...]] by address.

    An expandable segment counts once for each mapped stretch of it, as in PyTorch's snapshot.
    """
    known = set(held)
    for pool in allocator.pools:
        known.update(pool.free_blocks())
    firsts = set()
    for block in known:
        while block.previous is not None:
            block = block.previous
        firsts.add(block)
    found: list[list[Any]] = []
    for first in sorted(firsts, key=lambda block: block.address):
        block_or_none: Block | None = first
        fresh = True
        while block_or_none is not None:
            block = block_or_none
            if block.mapped:
                if fresh:
                    pool_name = "S" if block.shelf.pool.small else "L"
                    found.append([block.shelf.stream, pool_name, 0, []])
                found[-1][2] += block.size
                found[-1][3].append([block.size, 1 if block.allocated else 2 * bool(block.events)])
            fresh = not block.mapped
            block_or_none = block.next
    return found


class Run:
    """Plays a recorded run's operations."""

    def __init__(self, run: dict[str, Any], setting: dict[str, Any]) -> None:
        if setting["memory_fraction"]:
            total = run["frac_total"]
            device = Device(total=total, allowed=int(run["fraction"] * total))
        else:
            device = Device(total=run["device_total"], taken=run["device_used"])
        self.passed: dict[int, int] = {}
        deferred = setting["events"] == "deferred"
        self.allocator = CachingAllocator(
            Settings.parse(setting["PYTORCH_CUDA_ALLOC_CONF"]),
            device,
            (lambda stream, at: at <= self.passed.get(stream, -1)) if deferred else None,
        )
        self.held: dict[int, Block] = {}
        self.waiting: list[Block] = []

    def play(self, at: int, operation: list[Any]) -> None:
        match operation:
            case ["A", number, size, stream]:
                if size:
                    self.held[number] = self.allocator.malloc(size, stream)
            case ["F", number]:
                if number in self.held:
                    self.waiting.append(block := self.held.pop(number))
                    self.allocator.free(block, at)
            case ["R", number, stream]:
                if number in self.held:
                    self.allocator.record_stream(self.held[number], stream)
            case ["Y", stream]:
                self.passed[stream] = at
            case ["E"]:
                self.allocator.empty_cache()

    def blocks(self) -> list[Block]:
        return [*self.held.values(), *(block for block in self.waiting if block.events)]


@pytest.mark.parametrize("setting", data("allocator_runs.json.gz")["settings"])
def test_random_runs_are_pytorchs_step_by_step(setting: str) -> None:
    recorded = data("allocator_runs.json.gz")
    for number, run in enumerate(recorded["runs"]):
        if setting not in run["results"]:
            continue
        stated = run["results"][setting]
        played = Run(run, recorded["settings"][setting])
        refused = []
        for at, operation in enumerate(run["ops"]):
            try:
                played.play(at, operation)
            except OutOfMemoryError:
                refused.append(at)
            counters = played.allocator.counters
            found = [getattr(counters, name) for name in COUNTERS]
            assert found == [stated[name][at] for name in COUNTERS], (number, at, operation)
        assert refused == stated["oom"]
        assert segments(played.allocator, played.blocks()) == stated["layout"]


@pytest.mark.parametrize("name", data("allocator_traces.json.gz")["runs"])
def test_whole_runs_have_pytorchs_peaks_in_every_phase(name: str) -> None:
    run = data("allocator_traces.json.gz")["runs"][name]
    for setting, stated in run["results"].items():
        device = Device(total=stated["device_total"], allowed=stated.get("allowed_bytes"))
        allocator = CachingAllocator(Settings.parse(stated["PYTORCH_CUDA_ALLOC_CONF"]), device)
        peaks, refused = peaks_of(allocator, run)
        assert peaks == stated["phases"], setting
        assert (refused, allocator.counters.retries) == (stated["oom_step"], stated["retries"])


def peaks_of(allocator: CachingAllocator, run: dict[str, Any]) -> tuple[dict[str, list[int]], int]:
    """Highest allocated, reserved, active, requested of each phase; the refused event, or -1."""
    held: dict[int, Block] = {}
    peaks: dict[str, list[int]] = {}
    phase = ""
    for at, (number, *request) in enumerate(run["events"]):
        if request and phase != run["phases"][request[2]]:
            phase = run["phases"][request[2]]
            peaks[phase] = _levels(allocator)
        try:
            if number in held:
                allocator.free(held.pop(number))
            if request and request[0]:
                held[number] = allocator.malloc(request[0], request[1])
        except OutOfMemoryError:
            return peaks, at
        peaks[phase] = [max(pair) for pair in zip(peaks[phase], _levels(allocator), strict=True)]
    return peaks, -1


def _levels(allocator: CachingAllocator) -> list[int]:
    found = allocator.counters
    return [found.allocated, found.reserved, found.active, found.requested]


CONFIGURATIONS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.6,max_split_size_mb:32,roundup_power2_divisions:[4:2,>:8]",
    "expandable_segments:True,large_segment_size_mb:64",
]


class Ledger(RuleBasedStateMachine):
    """Whatever is asked: blocks in use never overlap, counters are sums, all given back is zero."""

    CONFIGURATION = ""

    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings.parse(self.CONFIGURATION)
        self.device = Device(total=2 * GIB, taken=64 << 20, allowed=GIB)
        self.allocator = CachingAllocator(self.settings, self.device)
        self.held: list[tuple[Block, int]] = []

    @rule(
        size=st.integers(1, 4096) | st.integers(1, 1 << 22) | st.integers(1, 1 << 28),
        s=st.integers(0, 2),
    )
    def ask(self, size: int, s: int) -> None:
        try:
            block = self.allocator.malloc(size, s)
        except OutOfMemoryError:
            assert self.device.mapped + self.settings.segment_size(size) > GIB
            return
        rounded = self.settings.round_size(size)
        assert rounded <= block.size
        if not self.settings.expandable_segments and rounded > 1 << 20:
            assert block.size - rounded <= max(1 << 20, 20 << 20 if rounded > 32 << 20 else 1 << 20)
        else:
            assert block.size - rounded < 512
        self.held.append((block, size))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0), uses=st.lists(st.integers(0, 2), max_size=2))
    def give(self, which: int, uses: list[int]) -> None:
        block, _ = self.held.pop(which % len(self.held))
        for stream in uses:
            self.allocator.record_stream(block, stream)
        self.allocator.free(block)

    @rule()
    def empty(self) -> None:
        self.allocator.empty_cache()

    @invariant()
    def counters_are_sums(self) -> None:
        counters = self.allocator.counters
        assert counters.allocated == sum(block.size for block, _ in self.held)
        assert counters.requested >= sum(size for _, size in self.held)
        assert counters.allocated <= counters.active <= counters.reserved == self.device.mapped
        assert counters.reserved <= GIB + self.settings.large_segment

    @invariant()
    def blocks_never_overlap(self) -> None:
        spans = sorted((block.address, block.address + block.size) for block, _ in self.held)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))

    def teardown(self) -> None:
        for block, _ in self.held:
            self.allocator.free(block)
        self.allocator.empty_cache()
        counters = self.allocator.counters
        assert (counters.allocated, counters.active, counters.requested) == (0, 0, 0)
        assert counters.reserved == self.device.mapped == 0


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_it_keeps_its_books(configuration: str) -> None:
    machine = type("Configured", (Ledger,), {"CONFIGURATION": configuration})
    case = machine.TestCase()
    case.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
    case.runTest()


@given(st.integers(1, 1 << 36), st.sampled_from([1, 2, 4, 8, 16]))
def test_rounding_up_to_divisions_of_a_power_of_two(size: int, divisions: int) -> None:
    """At most one division too much, never too little, and a power of two is left as it is."""
    rounded = Settings.parse(f"roundup_power2_divisions:{divisions}").round_size(size)
    floor = 1 << (size.bit_length() - 1)
    assert size <= rounded < size + max(512, floor // divisions)
    if size >= 512 and size == floor:
        assert rounded == size


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_split_size:128", "did you mean max_split_size_mb?"),
        ("max_split_size_mb:19", "at least 20"),
        ("expandable_segments:yes", "True or False"),
        ("garbage_collection_threshold:1.5", "between 0 and 1"),
        ("roundup_power2_divisions:3", "powers of two"),
        ("backend:cudaMallocAsync", "not modelled"),
        ("expandable_segments", "no `option:value`"),
    ],
)
def test_a_configuration_that_pytorch_would_not_take(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says.replace("?", r"\?")):
        Settings.parse(text)


def test_a_small_buffer_serves_two_halves_and_a_large_one_keeps_less_than_a_mebibyte() -> None:
    """2 MiB segments up to 1 MiB, 20 MiB up to 10 MiB, then multiples of 2 MiB, unsplit."""
    allocator = CachingAllocator(Settings(), Device(total=GIB))
    first = allocator.malloc(1 << 20, 0)
    second = allocator.malloc(1 << 20, 0)
    assert (allocator.counters.reserved, second.address - first.address) == (2 << 20, 1 << 20)
    allocator.malloc((1 << 20) + 1, 0)
    assert allocator.counters.reserved == 22 << 20
    before = allocator.counters.allocated
    allocator.malloc(31 << 20, 0)
    assert allocator.counters.reserved == 54 << 20
    assert allocator.counters.allocated - before == 32 << 20  # the last MiB is not split off
