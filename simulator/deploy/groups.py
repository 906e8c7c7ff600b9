"""The groups that programs communicate in, and what each of their collectives costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from simulator.deploy.symmetry import Symmetry
from simulator.errors import ProgramError
from simulator.hardware.cluster import Cluster
from simulator.plan.mesh import Mesh
from simulator.program.instructions import Collective
from simulator.program.program import Program
from simulator.timing.collectives import Pattern

Choose = Callable[[str, int, tuple[int, ...], Cluster], Pattern]
"""(kind, bytes, members, cluster) to the pattern of the algorithm that carries it out."""

Variant = tuple[str, int]
"""A collective's kind and bytes."""


class Group(NamedTuple):
    """Ranks that communicate along ``axis``, and the pattern of each thing they do."""

    axis: str
    members: tuple[int, ...]
    patterns: Mapping[Variant, Pattern]


def variants(program: Program) -> dict[str, frozenset[Variant]]:
    """What a program's collectives are, by axis."""
    found: dict[str, set[Variant]] = {}
    for block in {call.block for call in program.calls}:
        for instruction in program.blocks[block].instructions:
            if isinstance(instruction, Collective):
                found.setdefault(instruction.group, set()).add(
                    (instruction.kind, instruction.bytes)
                )
    return {axis: frozenset(kinds) for axis, kinds in found.items()}


def issued_by(programs: Sequence[Program]) -> dict[int, dict[str, frozenset[Variant]]]:
    """What each distinct program issues, by its identity and axis."""
    return {key: variants(one) for key, one in {id(one): one for one in programs}.items()}


def find_groups(
    programs: Sequence[Program], cluster: Cluster, mesh: Mesh, choose: Choose, symmetry: Symmetry
) -> list[Group]:
    """Every group that communicates, by axis and first rank. ``programs[r]`` is rank r's.

    Of groups that ``symmetry`` maps onto each other, the first.
    """
    issued = issued_by(programs)
    groups = []
    for axis in used_axes(mesh, issued.values()):
        for members in _members(mesh, axis):
            if not symmetry.first(members[0], axis):
                continue
            distinct = dict.fromkeys(id(programs[rank]) for rank in members)
            wanted = frozenset[Variant]().union(
                *(issued[key].get(axis, frozenset()) for key in distinct)
            )
            if wanted:
                patterns = {v: choose(v[0], v[1], members, cluster) for v in sorted(wanted)}
                groups.append(Group(axis, members, patterns))
    return groups


def used_axes(mesh: Mesh, issued: Iterable[Mapping[str, frozenset[Variant]]]) -> list[str]:
    """The axes along which programs communicate, outermost first."""
    used = dict.fromkeys(axis for by_axis in issued for axis in by_axis)
    for axis in used:
        if axis.partition(":")[0] not in mesh.axes:
            raise ProgramError(f"a collective of group {axis!r}, which is no axis of the mesh")
    return sorted(used, key=lambda axis: (mesh.axes.index(axis.partition(":")[0]), axis))


def _members(mesh: Mesh, axis: str) -> list[tuple[int, ...]]:
    """All groups along ``axis``, or parts of them: one for each rank that is first in its own."""
    whole, _, part = axis.partition(":")
    size, stride = int(part or mesh.sizes[mesh.axes.index(whole)]), mesh.stride(whole)
    return [
        mesh.group(axis, first) for first in range(mesh.world_size) if first // stride % size == 0
    ]
