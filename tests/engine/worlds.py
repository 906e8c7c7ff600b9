"""Small clusters, patterns, prices and programs that the tests of deploy and engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.deploy import Deployment, GroupClass, RankClass, Traffic
from simulator.deploy.deployment import SCALE
from simulator.dtypes import DType
from simulator.engine import NO_OVERLAP_COST, Prices
from simulator.hardware.cluster import Cluster, Device, Link
from simulator.hardware.gpu import Gpu
from simulator.kernels import Elementwise
from simulator.program.instructions import (
    Collective,
    HostWait,
    Instruction,
    Launch,
    Record,
    Stream,
    Wait,
)
from simulator.program.program import Block, Call, Phase, Program
from simulator.timing.collectives import Pattern
from simulator.trace.timeline import SpanKind, Timeline

C, AG, RS, AR = Stream.COMPUTE, Stream.ALL_GATHER, Stream.REDUCE_SCATTER, Stream.ALL_REDUCE
COPY = Stream.ALL_GATHER_COPY_IN


def gpu(name: str = "gpu", speed: float = 1.0) -> Gpu:
    """``speed`` 2.0: kernels take half as long under ``launch_ns``."""
    return Gpu(
        name=name,
        family="test",
        usable_bytes=1,
        hbm_bytes_per_s=speed,
        peak_flops={DType.BF16: 1.0},
        sms=1,
        tdp_watts=1.0,
        power_watts=1.0,
        source="test",
    )


def launch(ns: int, stream: Stream = C) -> Launch:
    """A kernel of ``ns`` on a GPU of speed 1."""
    kernel = Elementwise(name="k", kind="copy", read=ns, written=0)
    return Launch(kernel, stream, "m")


def launch_ns(block: Block, gpu: Gpu) -> tuple[int, ...]:
    return tuple(
        int(i.kernel.bytes / gpu.hbm_bytes_per_s)
        for i in block.instructions
        if isinstance(i, Launch)
    )


def prices(**changes: object) -> Prices:
    """Free host, no overlap cost, unless changed."""
    free = {
        "launch_ns": launch_ns,
        "host_launch_ns": 0,
        "host_collective_ns": 0,
        "overlap": NO_OVERLAP_COST,
    }
    return Prices(**(free | changes))  # type: ignore[arg-type]


def collective(
    size: int,
    stream: Stream = AG,
    group: str = "dp_shard",
    kind: str = "all_gather",
    name: str = "",
) -> Collective:
    return Collective(
        kind=kind, bytes=size, group=group, stream=stream, name=name or kind, module="m"
    )


def program(*calls: tuple[Instruction, ...], phase: Phase = Phase.FORWARD) -> Program:
    """Each call its own block ``b0``, ``b1``, ...; events below 100 are shared by all calls."""
    shared = tuple(f"e{i}" for i in range(100))
    return Program(
        blocks=tuple(
            Block(name=f"b{i}", instructions=tuple(c), event_parameters=shared)
            for i, c in enumerate(calls)
        ),
        calls=tuple(
            Call(block=i, registers=(), events=tuple(range(100)), phase=phase, step=0)
            for i in range(len(calls))
        ),
        registers=(),
        events=shared,
    )


def on_one_link(latency_ns: int = 0) -> Callable[[Collective], Traffic]:
    """Every collective crosses link class 0 once."""
    return lambda collective: Traffic(latency_ns=latency_ns, weights=((0, SCALE),))


ONE_LINK = on_one_link()


def no_links(collective: Collective) -> Traffic:
    """A collective of n bytes takes n ns and no bandwidth."""
    return Traffic(latency_ns=collective.bytes, weights=())


def together(
    *programs: Program,
    traffic: Callable[[Collective], Traffic] = ONE_LINK,
    capacities: tuple[int, ...] = (10**9,),
    axes: tuple[str, ...] = ("dp_shard", "dp_replicate"),
    gpus: tuple[Gpu, ...] = (),
) -> Deployment:
    """All classes in one group along each axis; ``capacities`` in bytes/s (1e9: a byte a ns)."""
    by_axis: dict[str, dict[tuple[str, int], Traffic]] = {axis: {} for axis in axes}
    for each in programs:
        for _, i in each.instructions():
            if isinstance(i, Collective):
                by_axis[i.group][i.kind, i.bytes] = traffic(i)
    everyone = tuple(range(len(programs)))
    return Deployment(
        classes=tuple(
            RankClass(
                index=i,
                program=p,
                gpu=gpus[i] if gpus else gpu(),
                ranks=(i,),
                groups={axis: n for n, axis in enumerate(axes)},
            )
            for i, p in enumerate(programs)
        ),
        groups=tuple(
            GroupClass(index=n, axis=axis, members=everyone, traffic=by_axis[axis])
            for n, axis in enumerate(axes)
        ),
        capacities=tuple(capacity * SCALE for capacity in capacities),
        class_of_rank=everyone,
    )


Row = tuple[str, str, str, int, int]


def rows(timeline: Timeline, rank: int = 0) -> list[Row]:
    """(stream, kind, name, start, end) of each span of a rank's class."""
    spans, streams = timeline.spans, list(Stream)
    return [
        (
            streams[spans.stream[i]].value,
            SpanKind(spans.kind[i]).name,
            spans.names[spans.name[i]],
            int(spans.start[i]),
            int(spans.end[i]),
        )
        for i in range(len(spans.start))
        if spans.rank_class[i] == timeline.class_of_rank[rank]
    ]


@dataclass
class Star:
    """Nodes of GPUs on a switch, one NIC a GPU (or ``one_nic`` for all) on one fabric switch.

    ``slow_links`` and ``gpus`` break the symmetry: link index or device index to a new one.
    """

    nodes: int
    per_node: int
    nvlink: float = 4e9
    nic: float = 1e9
    one_nic: bool = False
    slow_links: dict[int, float] = field(default_factory=dict)
    gpus: dict[int, Gpu] = field(default_factory=dict)
    name: str = "star"
    network: str = "ib-ndr"

    def __post_init__(self) -> None:
        same = gpu()
        self.devices = [
            Device(
                name=f"node{r // self.per_node}/gpu{r % self.per_node}",
                node=r // self.per_node,
                local=r % self.per_node,
                gpu=self.gpus.get(r, same),
            )
            for r in range(self.nodes * self.per_node)
        ]
        ends = [
            ("nvlink", self.nvlink, "up"),
            ("nvlink", self.nvlink, "down"),
            ("nic", self.nic, "up"),
            ("nic", self.nic, "down"),
        ]
        self.links = [
            Link(
                source=f"{device.name}/{way}",
                target=kind,
                kind=kind,
                bytes_per_s=self.slow_links.get(4 * r + k, rate),
                latency_s=0.0,
            )
            for r, device in enumerate(self.devices)
            for k, (kind, rate, way) in enumerate(ends)
        ]

    @property
    def capacities(self) -> list[float]:
        return [link.bytes_per_s for link in self.links]

    def route(self, source: int, target: int, rail: int | None = None) -> tuple[int, ...]:
        if self.devices[source].node == self.devices[target].node:
            return 4 * source, 4 * target + 1
        if self.one_nic:
            source, target = (r - r % self.per_node for r in (source, target))
        return 4 * source + 2, 4 * target + 3

    def nics(self, node: int) -> int:
        return self.per_node


def ring(kind: str, size: int, members: tuple[int, ...], cluster: Cluster) -> Pattern:
    """A plain ring: 10 us and S·(n-1)/n on every link of it, twice for an all_reduce."""
    n = len(members)
    factor = (n - 1) / n * (2 if kind == "all_reduce" else 1)
    loads: dict[int, float] = {}
    if n > 1:
        for here, there in zip(members, (*members[1:], members[0]), strict=True):
            for link in cluster.route(here, there):
                loads[link] = loads.get(link, 0.0) + factor
    return Pattern(
        algorithm="ring", kind=kind, alpha_s=1e-6 * n, c_s=0.0, factor=factor, loads=loads
    )


def fsdp(
    layers: int,
    *,
    steps: int = 1,
    axis: str = "dp_shard",
    replicate: str | None = None,
    compute: int = 400_000,
    kernels: int = 12,
    size: int = 400_000,
) -> Program:
    """FSDP2 in outline: prefetched gathers, per-layer reduce-scatters, an optimizer step."""
    gathered, free, reduced = 0, 1, 2
    work = [launch(compute // kernels) for _ in range(kernels)]
    gather = [
        Wait(free, COPY),
        launch(2_000, COPY),
        Record(10, COPY),
        Wait(10, AG),
        collective(size, AG, axis, "all_gather", "ag.*"),
        Record(gathered, AG),
    ]
    use = [Wait(gathered, C), launch(3_000), *work, Record(free, C)]
    reduce = [
        launch(4_000, C),
        Record(11, C),
        Wait(11, RS),
        collective(size, RS, axis, "reduce_scatter", "rs.*"),
        *([collective(size // 4, AR, replicate, "all_reduce", "ar.*")] if replicate else []),
        Record(reduced, RS),
    ]
    shared = ("gathered", "free", "reduced")
    blocks = [
        Block(name=name, instructions=tuple(code), event_parameters=shared)
        for name, code in (
            ("layers.*.gather", gather),
            ("layers.*.forward", use),
            ("layers.*.backward", [*gather, *use, *work]),
            ("layers.*.reduce", reduce),
            (
                "optimizer",
                [Wait(reduced, C), *(launch(1_000) for _ in range(50)), HostWait(reduced)],
            ),
        )
    ]
    calls = []
    for step in range(steps):

        def call(block: int, phase: Phase, layer: int | None, step: int = step) -> Call:
            events = tuple(3 * (layer or 0) + i for i in range(3))
            return Call(
                block=block, registers=(), events=events, phase=phase, step=step, layer=layer
            )

        calls.append(call(0, Phase.FORWARD, 0))
        for layer in range(layers):
            if layer + 1 < layers:
                calls.append(call(0, Phase.FORWARD, layer + 1))
            calls.append(call(1, Phase.FORWARD, layer))
        for layer in reversed(range(layers)):
            calls.append(call(2, Phase.BACKWARD, layer))
            calls.append(call(3, Phase.BACKWARD, layer))
        calls.append(call(4, Phase.OPTIMIZER, None))
    return Program(
        blocks=tuple(blocks),
        calls=tuple(calls),
        registers=(),
        events=tuple(f"e{i}" for i in range(3 * layers)),
    )
