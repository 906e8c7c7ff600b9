"""A made-up trace with the shape of a real one: layers, gathers, saved activations, two steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from simulator.program.instructions import Category
from simulator.trace.header import Header
from simulator.trace.memory import (
    CallFacts,
    LiveTensor,
    MarkPoint,
    MemoryCurve,
    MemoryReport,
    PhasePeak,
)
from simulator.trace.timeline import CallTimes, EngineCounts, SpanKind, Spans, Timeline
from simulator.trace.trace import Trace

CATEGORIES = tuple(category.value for category in Category)
COMPUTE, GATHER, SCATTER = 0, 2, 3
MIB = 2**20


@dataclass
class Tape:
    """Writes calls, allocations and spans in order, with the ledger that follows from them."""

    live: dict[str, LiveTensor] = field(default_factory=dict)
    calls: list[tuple[int, str, str]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, float, list[int]]] = field(default_factory=list)
    marks: list[MarkPoint] = field(default_factory=list)
    peaks: dict[tuple[int, str], PhasePeak] = field(default_factory=dict)
    alive: dict[tuple[int, str], tuple[LiveTensor, ...]] = field(default_factory=dict)
    resident: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int, str, int, int]] = field(default_factory=list)
    now: int = 0
    gather_free: int = 0

    def by_category(self) -> dict[str, int]:
        totals = dict.fromkeys(CATEGORIES, 0)
        for tensor in self.live.values():
            totals[tensor.category] += tensor.bytes
        return totals

    def call(self, step: int, phase: str, name: str) -> None:
        self.calls.append((step, phase, name))
        self.times.append((self.now, self.now))

    def alloc(self, name: str, category: Category, size: int, fraction: float) -> None:
        step, phase, module = self.calls[-1]
        self.live[f"{module}/{name}"] = LiveTensor(
            name=name, module=module, category=category.value, bytes=size
        )
        held = self.by_category()
        total, key = sum(held.values()), (step, phase)
        if key not in self.peaks or total > self.peaks[key].allocated:
            self.peaks[key] = PhasePeak(
                step=step,
                phase=phase,
                allocated=total,
                at=module,
                tensor=name,
                breakdown={c: b for c, b in held.items() if b},
                call=len(self.calls) - 1,
                fraction=fraction,
            )
            self.alive[key] = tuple(self.live.values())
        self.row(fraction)

    def free(self, key: str, fraction: float) -> None:
        del self.live[key]
        self.row(fraction)

    def row(self, fraction: float) -> None:
        self.rows.append((len(self.calls) - 1, fraction, list(self.by_category().values())))

    def mark(self, name: str, fraction: float) -> None:
        step = self.calls[-1][0]
        total = sum(self.by_category().values())
        call = len(self.calls) - 1
        self.marks.append(
            MarkPoint(step=step, mark=name, allocated=total, call=call, fraction=fraction)
        )

    def run(self, duration: int, kind: SpanKind = SpanKind.COMPUTE) -> None:
        """Occupy the compute stream for ``duration`` ns under the last call."""
        self.span(COMPUTE, kind, self.calls[-1][2], self.now, self.now + duration)
        self.now += duration
        self.times[-1] = (self.times[-1][0], self.now)

    def wait(self, until: int, kind: SpanKind) -> None:
        if until > self.now:
            self.run(until - self.now, kind)

    def span(self, stream: int, kind: SpanKind, name: str, start: int, end: int) -> None:
        self.spans.append((stream, len(self.calls) - 1, int(kind), name, start, end))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the made-up model looks like. Bytes per rank, durations in ns."""

    layers: int = 32
    parameters: int = 8_030_261_248
    ranks: int = 8
    saved: int = 640 * MIB
    logits: int = 4008 * MIB
    forward: int = 9_500_000
    gather: int = 3_100_000
    others: int = 0


def _gather(tape: Tape, shape: Shape) -> int:
    """Start the next all-gather where the gather stream is free; returns its end."""
    start = max(tape.gather_free, tape.now - 2_000_000)
    tape.gather_free = start + shape.gather
    name = f"all_gather {tape.calls[-1][2]}"
    tape.span(GATHER, SpanKind.COMMUNICATION, name, start, tape.gather_free)
    return tape.gather_free


def _forward(tape: Tape, shape: Shape, step: int) -> None:
    full = 2 * shape.parameters // (shape.layers + 2)
    tape.call(step, "forward", "embed")
    tape.alloc("tokens", Category.INPUTS, MIB, 0.0)
    tape.alloc("embedding", Category.ACTIVATIONS, 128 * MIB, 0.6)
    tape.wait(_gather(tape, shape), SpanKind.IDLE_COMMUNICATION)
    tape.run(900_000)
    for n in range(shape.layers):
        tape.call(step, "forward", f"layers.{n}")
        tape.mark(f"pre_fwd.begin:layers.{n}", 0.0)
        tape.alloc("gathered", Category.ALL_GATHER, full, 0.0)
        tape.alloc("unsharded", Category.UNSHARDED_PARAMETERS, full, 0.01)
        tape.free(f"layers.{n}/gathered", 0.02)
        for part in range(4):
            tape.alloc(f"saved{part}", Category.ACTIVATIONS, shape.saved // 4, 0.2 + part / 5)
            tape.alloc("silu", Category.TEMPORARIES, shape.saved // 8, 0.21 + part / 5)
            tape.free(f"layers.{n}/silu", 0.25 + part / 5)
        tape.free(f"layers.{n}/unsharded", 0.99)
        end = _gather(tape, shape)
        tape.wait(tape.now + 40_000, SpanKind.IDLE_HOST)
        tape.run(shape.forward)
        if n % 8 == 7:
            tape.wait(end + 8_000_000, SpanKind.IDLE_COMMUNICATION)
    tape.call(step, "forward", "loss")
    tape.alloc("logits", Category.ACTIVATIONS, shape.logits // 2, 0.1)
    tape.alloc("logits_fp32", Category.ACTIVATIONS, shape.logits, 0.5)
    tape.alloc("log_softmax", Category.ACTIVATIONS, shape.logits, 0.8)
    tape.free("loss/logits_fp32", 0.9)
    tape.run(21_000_000)


def _backward(tape: Tape, shape: Shape, step: int) -> None:
    full = 2 * shape.parameters // (shape.layers + 2)
    shard = 4 * shape.parameters // shape.ranks // (shape.layers + 2)
    loss = {k: v for k, v in tape.live.items() if v.module == "loss"}
    tape.call(step, "backward", "head")
    tape.live.update({f"head/{v.name}": v for v in loss.values()})
    for key in loss:
        del tape.live[key]
    tape.alloc("grad_logits", Category.TEMPORARIES, shape.logits, 0.1)
    for key in [k for k, v in tape.live.items() if v.module == "loss"]:
        tape.free(key, 0.6)
    tape.free("head/grad_logits", 0.7)
    tape.alloc("head.grad", Category.GRADIENTS, 2 * shard, 0.9)
    tape.run(42_000_000)
    for n in reversed(range(shape.layers)):
        tape.call(step, "backward", f"layers.{n}")
        tape.mark(f"pre_bwd.begin:layers.{n}", 0.0)
        tape.alloc("unsharded", Category.UNSHARDED_PARAMETERS, full, 0.0)
        tape.alloc("grad", Category.UNSHARDED_GRADIENTS, full, 0.3)
        for part in range(4):
            tape.live.pop(f"layers.{n}/saved{part}")
            tape.row(0.2 + part / 5)
        tape.alloc("scatter_in", Category.REDUCE_SCATTER, 2 * full, 0.9)
        tape.free(f"layers.{n}/grad", 0.92)
        tape.free(f"layers.{n}/unsharded", 0.93)
        tape.alloc("shard_grad", Category.GRADIENTS, shard, 0.95)
        tape.free(f"layers.{n}/scatter_in", 0.99)
        end = _gather(tape, shape)
        tape.run(2 * shape.forward)
        tape.span(
            SCATTER,
            SpanKind.COMMUNICATION,
            f"reduce_scatter layers.{n}",
            tape.now,
            tape.now + 4_000_000,
        )
        if n % 8 == 3:
            tape.wait(max(end, tape.now) + 2_500_000, SpanKind.IDLE_COMMUNICATION)


def _optimizer(tape: Tape, shape: Shape, step: int) -> None:
    states = 8 * shape.parameters // shape.ranks
    tape.call(step, "optimizer", "optimizer")
    if step == 0:
        tape.alloc("exp_avg", Category.OPTIMIZER, states // 2, 0.0)
        tape.alloc("exp_avg_sq", Category.OPTIMIZER, states // 2, 0.1)
        tape.live["states/m"] = tape.live.pop("optimizer/exp_avg")
        tape.live["states/v"] = tape.live.pop("optimizer/exp_avg_sq")
    tape.alloc("foreach", Category.OPTIMIZER_TEMPORARIES, states // 2, 0.3)
    tape.free("optimizer/foreach", 0.8)
    for key in [k for k, v in tape.live.items() if v.category in ("gradients", "inputs")]:
        del tape.live[key]
    tape.live.pop("embed/embedding")
    tape.row(1.0)
    tape.run(17_000_000, SpanKind.OPTIMIZER)
    tape.resident.append(sum(tape.by_category().values()))


def record(shape: Shape, steps: int = 2) -> Tape:
    tape = Tape()
    tape.call(0, "init", "init")
    tape.alloc("shards", Category.PARAMETERS, 4 * shape.parameters // shape.ranks, 0.0)
    tape.alloc("freqs", Category.BUFFERS, 4 * MIB, 0.5)
    for step in range(steps):
        _forward(tape, shape, step)
        _backward(tape, shape, step)
        _optimizer(tape, shape, step)
    return tape


def memory_report(tape: Tape) -> MemoryReport:
    peak_key = max(tape.peaks, key=lambda k: (tape.peaks[k].allocated, -k[0]))
    call, fraction, held = zip(*tape.rows, strict=True)
    step, phase, name = zip(*tape.calls, strict=True)
    return MemoryReport(
        phases=tuple(tape.peaks.values()),
        peak=tape.peaks[peak_key],
        alive_at_peak=tape.alive[peak_key],
        marks=tuple(tape.marks),
        curve=MemoryCurve(
            categories=CATEGORIES,
            call=np.array(call, np.int64),
            fraction=np.array(fraction),
            bytes=np.array(held, np.int64),
        ),
        calls=CallFacts(step=step, phase=phase, name=name),
        resident=tuple(tape.resident),
    )


def timeline(tape: Tape, ranks: int) -> Timeline:
    stream, call, kind, name, start, end = zip(*tape.spans, strict=True)
    names = tuple(dict.fromkeys(name))
    begin, close = (np.array(column, np.int64) for column in zip(*tape.times, strict=True))
    times = CallTimes(host_start=begin, host_end=begin, compute_start=begin, compute_end=close)
    columns = {"stream": stream, "call": call, "kind": kind, "start": start, "end": end}
    spans = Spans(
        rank_class=np.zeros(len(stream), np.int64),
        name=np.array([names.index(n) for n in name], np.int64),
        names=names,
        **{key: np.array(values, np.int64) for key, values in columns.items()},
    )
    counts = EngineCounts(classes=1, events=1234, launches=9876, collectives=len(stream) // 2)
    return Timeline(class_of_rank=(0,) * ranks, spans=spans, calls=(times,), counts=counts)


def synthetic_trace(
    shape: Shape | None = None, *, steps: int = 2, timed: bool = True, device_gib: float = 79.2
) -> Trace:
    """One class of ranks of an 8B-like model under FSDP2."""
    shape = shape or Shape()
    tape = record(shape, steps)
    header = Header(
        scenario="Llama-3.1 8B, FSDP2 over 8 H100s",
        version="0.1.0",
        seed=0,
        steps=steps,
        world_size=shape.ranks,
        device_names=tuple(f"node{r // 8}/gpu{r % 8}" for r in range(shape.ranks)),
        gpu="H100 SXM 80 GB",
        device_bytes=int(device_gib * 2**30),
        reserved_by_others=shape.others,
        parameters=shape.parameters,
        trained_parameters=shape.parameters,
        tokens=16384,
        model_flops=16384 * 6 * 10_000_000_000 // 2,
        hardware_flops=16384 * 7 * 10_000_000_000 // 2,
        peak_flops=989e12,
        warnings=("kernel efficiencies of this GPU are a prior: fewer than 20 points",),
    )
    return Trace(
        header=header,
        class_of_rank=(0,) * shape.ranks,
        memory=(memory_report(tape),),
        timeline=timeline(tape, shape.ranks) if timed else None,
    )


def two_classes(slow_ns: int = 30_000_000) -> Trace:
    """Rank 0 holds less and its optimizer takes ``slow_ns`` longer; the other ranks are alike."""
    small, big = record(Shape(saved=320 * MIB)), record(Shape())
    trace = synthetic_trace()
    slow = timeline(small, 8)
    times = slow.calls[0]
    last = len(times.compute_end) - 1
    stretched = times.compute_end.copy()
    stretched[last] += slow_ns
    spans, other = slow.spans, timeline(big, 8).spans
    final = np.flatnonzero((spans.kind == SpanKind.OPTIMIZER) & (spans.call == last))
    end = spans.end.copy()
    end[final] += slow_ns
    both = Spans(
        rank_class=np.concatenate([spans.rank_class, other.rank_class + 1]),
        name=np.concatenate([spans.name, other.name]),
        names=spans.names,
        end=np.concatenate([end, other.end]),
        **{
            key: np.concatenate([getattr(spans, key), getattr(other, key)])
            for key in ("stream", "call", "kind", "start")
        },
    )
    assert trace.timeline is not None
    return replace(
        trace,
        class_of_rank=(0,) + (1,) * 7,
        memory=(memory_report(small), memory_report(big)),
        timeline=replace(
            trace.timeline,
            class_of_rank=(0,) + (1,) * 7,
            spans=both,
            calls=(replace(times, compute_end=stretched), trace.timeline.calls[0]),
        ),
    )
