"""Put programs on a cluster: rank r runs on device r, and ranks that must behave alike fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulator.deploy.deployment import Deployment, GroupClass, RankClass
from simulator.deploy.fold import Partition, number, one_of_each, one_world, refine
from simulator.deploy.groups import Choose, Group, find_groups, issued_by, used_axes
from simulator.deploy.incidence import Incidence, meetings
from simulator.deploy.loads import Loads, group_loads
from simulator.deploy.symmetry import NONE, Symmetry, find_symmetry, first_links
from simulator.deploy.traffic import class_traffic
from simulator.errors import ProgramError, UserError
from simulator.hardware.cluster import Cluster
from simulator.plan.mesh import Mesh
from simulator.program.program import Program
from simulator.timing.collectives import choose as choose_algorithm


def deploy(
    program: Program | Mapping[int, Program],
    cluster: Cluster,
    mesh: Mesh,
    fold: bool = True,
    choose: Choose = choose_algorithm,
) -> Deployment:
    """Every rank of ``mesh`` on a device, with the program of all or the one given for it.

    Without ``fold`` every rank is a class of its own: the same results, more slowly.
    """
    world, devices = mesh.world_size, len(cluster.devices)
    if world > devices:
        raise UserError(f"{world} ranks need {world} GPUs, and {cluster.name} has {devices}")
    programs = _programs(program, world)
    kinds = number(zip(map(id, programs), _gpu_kinds(cluster, world), strict=True))
    axes = used_axes(mesh, issued_by(programs).values())
    symmetry = find_symmetry(cluster, mesh, axes, kinds) if fold else NONE
    met = _meet(programs, cluster, mesh, choose, symmetry) or _meet(
        programs, cluster, mesh, choose, NONE
    )
    assert met is not None
    groups, loads, incidence, symmetry = met
    partition = _partition(kinds, cluster, groups, loads, incidence, fold)
    capacities, traffic = class_traffic(
        loads, partition.groups, partition.links, incidence, cluster.capacities
    )
    class_of_rank = tuple([partition.ranks[symmetry.rank(rank)] for rank in range(world)])
    return Deployment(
        classes=_rank_classes(programs, cluster, class_of_rank, groups, incidence, partition),
        groups=tuple(
            GroupClass(index=index, axis=axis, members=members, traffic=traffic[index])
            for index, (axis, members) in enumerate(_group_classes(groups, incidence, partition))
        ),
        capacities=capacities,
        class_of_rank=class_of_rank,
    )


class _Met(NamedTuple):
    groups: Sequence[Group]
    loads: Sequence[Loads]
    incidence: Incidence
    symmetry: Symmetry


def _meet(
    programs: Sequence[Program], cluster: Cluster, mesh: Mesh, choose: Choose, symmetry: Symmetry
) -> _Met | None:
    """Who meets whom, the first of those that ``symmetry`` maps onto each other; None: wrong."""
    groups = find_groups(programs, cluster, mesh, choose, symmetry)
    loads = [group_loads(group) for group in groups]
    ranks = [rank for rank in range(len(programs)) if symmetry.rank(rank) == rank]
    first_link = first_links(cluster, symmetry)
    incidence = meetings(ranks, groups, loads, symmetry, first_link)
    return None if incidence is None else _Met(groups, loads, incidence, symmetry)


def _programs(program: Program | Mapping[int, Program], world: int) -> list[Program]:
    if isinstance(program, Program):
        return [program] * world
    if missing := [rank for rank in range(world) if rank not in program]:
        raise ProgramError(f"no program for rank {missing[0]} of {world}")
    return [program[rank] for rank in range(world)]


def _partition(
    kinds: Sequence[int],
    cluster: Cluster,
    groups: Sequence[Group],
    loads: Sequence[Loads],
    incidence: Incidence,
    fold: bool,
) -> Partition:
    if not fold:
        return one_of_each(incidence)
    if _same_everywhere(kinds, groups):
        return one_world(incidence)
    sorts = [
        (group.axis, tuple(load.latency_ns.items()))
        for group, load in zip(groups, loads, strict=True)
    ]
    return refine(incidence, kinds, sorts, cluster.capacities)


def _same_everywhere(kinds: Sequence[int], groups: Sequence[Group]) -> bool:
    """Whether all ranks are of one kind and meet in groups of them all only: nothing to refine."""
    return not any(kinds) and all(len(group.members) == len(kinds) for group in groups)


def _gpu_kinds(cluster: Cluster, world: int) -> list[int]:
    """Equal GPUs get equal numbers; they hold dicts, so they are compared and not hashed."""
    known: dict[int, int] = {}
    distinct = []
    kinds = []
    for device in cluster.devices[:world]:
        gpu = device.gpu
        if id(gpu) not in known:
            if gpu not in distinct:
                distinct.append(gpu)
            known[id(gpu)] = distinct.index(gpu)
        kinds.append(known[id(gpu)])
    return kinds


def _rank_classes(
    programs: Sequence[Program],
    cluster: Cluster,
    class_of_rank: Sequence[int],
    groups: Sequence[Group],
    incidence: Incidence,
    partition: Partition,
) -> tuple[RankClass, ...]:
    ranks: dict[int, list[int]] = {}
    for rank, index in enumerate(class_of_rank):
        ranks.setdefault(index, []).append(rank)
    return tuple(
        RankClass(
            index=index,
            program=programs[of[0]],
            gpu=cluster.devices[of[0]].gpu,
            ranks=tuple(of),
            groups={groups[g].axis: partition.groups[g] for g in incidence.groups_of[of[0]]},
        )
        for index, of in ranks.items()
    )


def _group_classes(
    groups: Sequence[Group], incidence: Incidence, partition: Partition
) -> list[tuple[str, tuple[int, ...]]]:
    """Axis and member classes of each class of groups."""
    found: dict[int, tuple[str, tuple[int, ...]]] = {}
    for index, group, members in zip(partition.groups, groups, incidence.members, strict=True):
        if index not in found:
            classes = {partition.ranks[rank] for rank in members}
            found[index] = group.axis, tuple(sorted(classes))
    return list(found.values())
