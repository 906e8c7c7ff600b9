"""The sections of a summary that are about memory, each from a result alone."""

from __future__ import annotations

from simulator.report.palette import CATEGORY_COLOURS
from simulator.report.table import Section, bar
from simulator.report.words import TIGHT, by_name, gib, percent
from simulator.trace.result import Result

_BIGGEST = 8
"""Rows of the table of tensors."""

TEXTBOOK = {
    16: "fp32 weights, gradients and two moments",
    12: "bf16 weights, gradients; fp32 moments",
}
"""Bytes a parameter of the usual rules of thumb, and what each of them stands for."""

FROZEN = 2
"""Bytes of a frozen parameter in those rules: its bf16 weight alone."""


def at_peak(result: Result) -> Section:
    """The breakdown at the peak by category; its rows add up to the peak."""
    memory = result.memory
    total = memory.peak_allocated_bytes
    order = {name: i for i, name in enumerate(CATEGORY_COLOURS)}
    parts = sorted(
        (item for item in memory.breakdown_at_peak.items() if item[1]),
        key=lambda item: (-item[1], order.get(item[0], len(order))),
    )
    rows = [
        (name, gib(size, 2), percent(size, total, 1), bar(size / total)) for name, size in parts
    ]
    rows.append(("all", gib(total, 2), "", ""))
    return Section(
        title="Memory at the peak",
        align="lrrl",
        headers=("category", "GiB", "share", ""),
        rows=tuple(rows),
        total=True,
    )


def by_phase(result: Result) -> Section:
    """The peak of each phase; the highest is marked."""
    memory = result.memory
    rows = []
    for p in memory.phases:
        here = (p.step, p.phase) == (memory.peak_step, memory.peak_phase)
        share = p.peak_allocated_bytes / max(memory.peak_allocated_bytes, 1)
        place = (f"{p.at}: {p.tensor}" if p.tensor else "nothing") + (" ◀ peak" if here else "")
        size = gib(p.peak_allocated_bytes, 2)
        rows.append((str(p.step), p.phase, size, bar(share, 16).ljust(16), place))
    return Section(
        title="Peak of each phase",
        align="rlrll",
        headers=("step", "phase", "GiB", "", "where: what is being allocated"),
        rows=tuple(rows),
    )


def biggest(result: Result) -> Section | None:
    """The largest tensors alive at the peak; those of all layers together."""
    report = result.trace.memory[result.trace.class_of_rank[result.memory.peak_rank]]
    groups = list(by_name(report.alive_at_peak).items())
    if not groups:
        return None
    rows = [
        (gib(size, 2), f"{count} × {gib(size // count, 3)}", f"{module}: {tensor}", category)
        for (module, tensor, category), (count, size) in groups[:_BIGGEST]
    ]
    rest = groups[_BIGGEST:]
    if rest:
        size = sum(total for _, (_, total) in rest)
        rows.append((gib(size, 2), "", f"{len(rest)} more", ""))
    return Section(
        title="Largest tensors alive at the peak",
        align="rrll",
        headers=("GiB", "each", "module: tensor", "category"),
        rows=tuple(rows),
    )


def beside(result: Result) -> Section:
    """Rules of thumb, fully sharded, beside the simulated peak, and what they miss."""
    header, peak = result.trace.header, result.memory.peak_allocated_bytes
    trained = header.trained_parameters
    frozen = header.parameters - trained
    rows = []
    for per_parameter, words in TEXTBOOK.items():
        size = (per_parameter * trained + FROZEN * frozen) // header.world_size
        rule = f"{per_parameter} B/{'trained ' * bool(frozen)}parameter"
        rows.append((rule, gib(size, 2), _signed(peak - size), words))
    return Section(
        title=f"Beside it: the textbook, {header.parameters:,} parameters over "
        f"{header.world_size} ranks",
        align="lrrl",
        headers=("rule", "GiB", "it misses", "what it counts"),
        rows=tuple(rows),
        notes=(
            *((f"Frozen parameters count {FROZEN} B each, as bf16 weights.",) * bool(frozen)),
            "It misses activations, logits, gathered parameters and gradients in flight.",
        ),
    )


def _signed(size: int) -> str:
    return f"+{gib(size, 2)}" if size > 0 else f"−{gib(-size, 2)}" if size < 0 else "0"


def not_counted(result: Result) -> Section | None:
    """What is not in the figure, said plainly, and what of the GPU was set aside."""
    memory, header = result.memory, result.trace.header
    notes = []
    if memory.allocator is None:
        notes.append(
            "The figure is what PyTorch calls allocated: every request rounded up to 512 bytes. "
            "What the caching allocator reserves beyond it (fragmentation), the CUDA context and "
            "NCCL's buffers come on top; nvidia-smi shows them all."
        )
    if header.reserved_by_others:
        others = gib(header.reserved_by_others, 2)
        notes.append(f"Others hold {others} GiB of each GPU; the verdict leaves that out.")
    if abs(memory.headroom_bytes) < TIGHT * memory.usable_bytes:
        notes.append("Within 5 % of the limit a real run may go either way.")
    if memory.peak_active_bytes is None:
        notes.append("Some frees wait for a stream here, so allocated is a lower bound on active.")
    if not notes:
        return None
    return Section(title="Of this figure", align="", rows=(), notes=tuple(notes))
