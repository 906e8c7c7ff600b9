"""Put programs on a cluster: rank r runs on device r, and ranks that must behave alike fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.deploy.deployment import Deployment, GroupClass, RankClass
from simulator.deploy.fold import Partition, number, one_of_each, one_world, refine
from simulator.deploy.groups import Choose, Group, find_groups
from simulator.deploy.traffic import Loads, class_traffic, group_loads
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
    groups = find_groups(programs, cluster, mesh, choose)
    loads = [group_loads(group) for group in groups]
    partition = _partition(programs, cluster, groups, loads, fold)
    capacities, traffic = class_traffic(loads, partition.groups, partition.links, cluster.links)
    return Deployment(
        classes=_rank_classes(programs, cluster, groups, partition),
        groups=tuple(
            GroupClass(
                index=index,
                axis=axis,
                members=members,
                traffic=traffic[index],
            )
            for index, (axis, members) in enumerate(_group_classes(groups, partition))
        ),
        capacities=capacities,
        class_of_rank=partition.ranks,
    )


def _programs(program: Program | Mapping[int, Program], world: int) -> list[Program]:
    if isinstance(program, Program):
        return [program] * world
    if missing := [rank for rank in range(world) if rank not in program]:
        raise ProgramError(f"no program for rank {missing[0]} of {world}")
    return [program[rank] for rank in range(world)]


def _partition(
    programs: Sequence[Program],
    cluster: Cluster,
    groups: Sequence[Group],
    loads: Sequence[Loads],
    fold: bool,
) -> Partition:
    world, links = len(programs), len(cluster.links)
    if not fold:
        return one_of_each(world, len(groups), links)
    kinds = number(zip(map(id, programs), _gpu_kinds(cluster, world), strict=True))
    if _same_everywhere(kinds, groups):
        return one_world(world, len(groups), links)
    return refine(kinds, cluster.capacities, groups, loads)


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
    programs: Sequence[Program], cluster: Cluster, groups: Sequence[Group], partition: Partition
) -> tuple[RankClass, ...]:
    ranks: dict[int, list[int]] = {}
    for rank, index in enumerate(partition.ranks):
        ranks.setdefault(index, []).append(rank)
    groups_of: dict[int, dict[str, int]] = {index: {} for index in ranks}
    for index, group in zip(partition.groups, groups, strict=True):
        for rank in group.members:
            groups_of[partition.ranks[rank]][group.axis] = index
    return tuple(
        RankClass(
            index=index,
            program=programs[of[0]],
            gpu=cluster.devices[of[0]].gpu,
            ranks=tuple(of),
            groups=groups_of[index],
        )
        for index, of in ranks.items()
    )


def _group_classes(
    groups: Sequence[Group], partition: Partition
) -> list[tuple[str, tuple[int, ...]]]:
    """Axis and member classes of each class of groups."""
    found: dict[int, tuple[str, tuple[int, ...]]] = {}
    for index, group in zip(partition.groups, groups, strict=True):
        if index not in found:
            members = {partition.ranks[rank] for rank in group.members}
            found[index] = group.axis, tuple(sorted(members))
    return list(found.values())
