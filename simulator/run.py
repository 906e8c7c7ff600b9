"""The one function that wires a run: scenario, program, deployment, timeline, memory, trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.dtypes import DType
from simulator.errors import UnsupportedError, UserError
from simulator.kernels import Gemm
from simulator.lowering.lower import decoder_of, lower
from simulator.lowering.units import units_of
from simulator.memory.ledger import replay
from simulator.model.count import flops_per_token, spared_flops_per_token
from simulator.plan.mesh import mesh_of
from simulator.trace.header import Header
from simulator.trace.result import Result, summarise
from simulator.trace.trace import Trace

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.gpu import Gpu
    from simulator.memory.allocation import Allocation
    from simulator.model.decoder import Decoder
    from simulator.program.program import Block, Program
    from simulator.scenario import Scenario
    from simulator.scenario.scenario import AllocatorChoice
    from simulator.trace.header import Outside
    from simulator.trace.timeline import Timeline

VERSION = "0.1.0"
SEED = 0

STEPS = 2
"""Steps played unless told otherwise: the first, which differs, and one like all after it."""


def simulate(
    scenario: str | Path | Mapping[str, Any],
    *,
    steps: int | None = None,
    memory_only: bool = False,
    **set: Any,
) -> Result:
    """Simulate one scenario and return what it says.

    Args:
        scenario: a file, the name of a packaged scenario, or a mapping with the same keys.
        steps: training steps to play, at least 2 (the default); the last one is reported.
        memory_only: replay memory and play no engine (no times); without an allocator, unless
            ``set`` names one.
        set: dotted keys to change: ``simulate(name, **{"training.micro_batch": 4})``.

    Raises:
        UserError: the scenario is wrong, or asks for what this version does not do.
    """
    from simulator.report.views import Plots
    from simulator.scenario import load, with_changes

    loaded = load(scenario)
    if set:
        loaded = with_changes(loaded, set)
    trace = run(
        loaded,
        steps=STEPS if steps is None else steps,
        memory_only=memory_only,
        allocator=not memory_only or "allocator" in set,
    )
    result = summarise(trace)
    return replace(result, views=Plots())


def run(
    scenario: Scenario,
    *,
    steps: int = STEPS,
    memory_only: bool = False,
    fold: bool = True,
    allocator: bool | None = None,
) -> Trace:
    """Everything that happens in ``steps`` training steps of ``scenario``.

    ``allocator``: whether the caching allocator serves the requests (None: where time is played
    too); the scenario may have it ``off``.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < STEPS:
        why = "because the first step differs from those after it"
        raise UserError(f"steps: a whole number of at least 2, {why}; found {steps!r}")
    cluster = cluster_of(scenario)
    try:
        _check_float8(scenario, cluster.devices[0].gpu)
        decoder = decoder_of(scenario.model, scenario.plan)
        program = lower(decoder, scenario.plan, steps)
    except UnsupportedError as error:
        raise scenario.located(error) from None
    header = _header(scenario, decoder, cluster, steps)
    served = (not memory_only) if allocator is None else allocator
    allocation = None
    if served and scenario.allocator is not None:
        header = replace(header, outside=_outside(scenario, program, cluster))
        allocation = _allocation(scenario.allocator, header, cluster.devices[0].gpu)
    if memory_only:
        classes = (0,) * header.world_size
        memory = replay(program, allocation=allocation)
        return Trace(header=header, class_of_rank=classes, memory=(memory,), timeline=None)
    price = _pricing(cluster.devices[0].gpu)
    timeline = _play(scenario, program, cluster, price, fold=fold)
    memory = replay(program, [price(block) for block in program.blocks], allocation=allocation)
    return Trace(
        header=header,
        class_of_rank=timeline.class_of_rank,
        memory=(memory,) * timeline.counts.classes,
        timeline=timeline,
    )


def _outside(scenario: Scenario, program: Program, cluster: Cluster) -> Outside:
    """What rank 0 holds beside the allocator: a communicator for each group that it is in."""
    from simulator.deploy.groups import issued_by, used_axes
    from simulator.memory.outside import outside

    mesh = mesh_of(scenario.plan.parallelism)
    axes = used_axes(mesh, issued_by([program]).values())
    return outside(cluster, [mesh.group(axis, 0) for axis in axes])


def _allocation(choice: AllocatorChoice, header: Header, gpu: Gpu) -> Allocation:
    """The allocator's settings, and what the others leave it of the device."""
    from simulator.memory.allocation import Allocation
    from simulator.memory.outside import workspace_bytes

    assert header.outside is not None
    taken = header.reserved_by_others + header.outside.usual
    return Allocation(
        settings=choice.settings,
        others=choice.others,
        capacity=max(header.device_bytes - taken, 0),
        workspace=workspace_bytes(gpu.family),
    )


def _check_float8(scenario: Scenario, gpu: Gpu) -> None:
    """``torch._scaled_mm`` runs where tensor cores multiply float8."""
    if scenario.plan.training.precision.fp8 is not None and DType.FP8 not in gpu.peak_flops:
        raise UnsupportedError(
            f"{gpu.name} multiplies no float8; leave it out, or book GPUs of the Ada, Hopper or "
            "Blackwell families",
            key="training.precision.fp8",
        )


def program_of(scenario: Scenario, steps: int = STEPS) -> Program:
    """What one rank of ``scenario`` issues."""
    try:
        return lower(decoder_of(scenario.model, scenario.plan), scenario.plan, steps)
    except UnsupportedError as error:
        raise scenario.located(error) from None


def cluster_of(scenario: Scenario) -> Cluster:
    """The topology graph that the scenario books."""
    from simulator.hardware.catalogue import gpu
    from simulator.hardware.topologies import build, find_topology

    spec = scenario.cluster
    named = None if spec.gpu is None else gpu(spec.gpu, scenario.directory)
    topology = find_topology(spec.topology, scenario.directory)
    return build(topology, spec.nodes, spec.gpus_per_node, named)


def _pricing(gpu: Gpu) -> Callable[[Block], Sequence[int]]:
    """Durations of a block's launches on ``gpu``, computed once a block."""
    from simulator.timing.prices import launch_ns

    known: dict[int, Sequence[int]] = {}

    def price(block: Block) -> Sequence[int]:
        if id(block) not in known:
            known[id(block)] = launch_ns(block, gpu)
        return known[id(block)]

    return price


def _play(
    scenario: Scenario,
    program: Program,
    cluster: Cluster,
    price: Callable[[Block], Sequence[int]],
    *,
    fold: bool,
) -> Timeline:
    from simulator.deploy import deploy
    from simulator.engine import Prices, play

    deployment = deploy(program, cluster, mesh_of(scenario.plan.parallelism), fold)
    # all-gather and reduce-scatter share one communicator, and NCCL runs the collectives of a
    # communicator one after the other in launch order
    prices = Prices(launch_ns=lambda block, gpu: price(block), serial_groups=True)
    return play(deployment, prices)


def _header(scenario: Scenario, decoder: Decoder, cluster: Cluster, steps: int) -> Header:
    training = scenario.plan.training
    from simulator.timing.kernels import peak_flops

    device = cluster.devices[0].gpu
    tokens = training.tokens * training.grad_accum
    each = flops_per_token(scenario.model, decoder, training.seq_len)
    model_flops = tokens * (
        each - spared_flops_per_token(scenario.model, decoder, training.seq_len)
    )
    units = units_of(decoder, training, last_apart=False)
    recomputed = sum(unit.kind.recomputed_flops for unit in units) * training.grad_accum
    world = scenario.plan.parallelism.world_size
    return Header(
        scenario=scenario.name,
        version=VERSION,
        seed=SEED,
        steps=steps,
        world_size=world,
        device_names=tuple(device.name for device in cluster.devices[:world]),
        gpu=device.name,
        device_bytes=device.usable_bytes,
        reserved_by_others=scenario.cluster.reserved_bytes,
        parameters=decoder.parameters,
        trained_parameters=decoder.trained_parameters,
        tokens=tokens,
        model_flops=model_flops,
        hardware_flops=model_flops + recomputed,
        peak_flops=peak_flops(device, training.precision.autocast or training.precision.compute),
        warnings=(*scenario.warnings, *_warnings(device, scenario, decoder)),
        at_least=scenario.plan.offload_parameters,
    )


def _warnings(gpu: Gpu, scenario: Scenario, decoder: Decoder) -> Iterator[str]:
    from simulator.timing.kernels import curve_note, misaligned

    kernels = [op.kernel for graph in decoder.graphs for op in graph.ops]
    slow = [k.name for k in kernels if isinstance(k, Gemm) and misaligned(k)]
    if slow:
        yield (
            f"{', '.join(slow)}: sizes that are no multiple of 8 make these products slower "
            "(1.46 times, one measured point)"
        )
    note = curve_note(gpu)
    if note is not None:
        yield f"{gpu.name}: {note}"
    if scenario.plan.offload_parameters:
        yield (
            "offload.parameters: the copies over PCIe are timed, the optimizer's step on the "
            "host is not: the step time is a lower bound"
        )
