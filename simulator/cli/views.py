"""The views of ``dryfit show``: each gives its text and its JSON object, made when asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import UserError

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.program.program import Program
    from simulator.scenario.scenario import Scenario


_LONGEST_CHAIN = 16
"""Files that extend one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line said."""

    scenario: str
    sets: tuple[str, ...] = ()
    out: Path | None = None
    parameters: str | None = None

    def load(self) -> Scenario:
        """The scenario with its changes."""
        from simulator.scenario import load

        return load(self.scenario, self.sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One view, as text and as data."""

    text: Callable[[], str]
    data: Callable[[], dict[str, object]]


def resolved(asked: Asked) -> Shown:
    """Every value and its origin."""
    from simulator.cli.output import table

    scenario = asked.load()
    folder = f"{scenario.directory}{os.sep}"
    values = [
        {"key": key, "value": value, "origin": origin}
        for key, (value, origin) in scenario.origins.items()
    ]
    rows = [[v["key"], v["value"], v["origin"].removeprefix(folder)] for v in values]
    return Shown(
        text=lambda: table(["key", "value", "from"], rows),
        data=lambda: {
            "schema": "dryfit.resolved/1",
            "scenario": scenario.name,
            "resolved": scenario.resolved,
            "values": values,
        },
    )


def topology(asked: Asked) -> Shown:
    """The cluster as a graph, and as a picture with ``--out``."""
    from simulator.report.topology import describe_topology, draw_topology

    cluster = _cluster(asked)
    if asked.out is not None:
        from simulator.cli.folder import write_whole

        write_whole(asked.out, lambda path: draw_topology(cluster, path))
    return Shown(text=lambda: describe_topology(cluster), data=lambda: _graph(cluster))


def _cluster(asked: Asked) -> Cluster:
    from simulator.hardware.topologies import build, find_topology
    from simulator.run import cluster_of

    if not asked.sets and _is_topology(asked.scenario):
        return build(find_topology(asked.scenario, Path.cwd()))
    return cluster_of(asked.load())


def _is_topology(name: str) -> bool:
    """Whether a topology is meant: a file here or in ``topologies/``, or a packaged one."""
    from simulator.documents.files import read_map
    from simulator.documents.mistakes import Mistakes
    from simulator.documents.node import plain
    from simulator.hardware.lookup import find_file

    place, base = Path.cwd(), name
    for _ in range(_LONGEST_CHAIN):
        try:
            path = find_file("topology", base, place)
            keys = plain(read_map(path, Mistakes()))
        except (UserError, OSError, ValueError):  # none, or what is wrong is told of a scenario
            return False
        if "builder" in keys:
            return True
        extended = keys.get("extends")
        if not isinstance(extended, str):
            return False
        place, base = path.parent, extended
    return False


def _graph(cluster: Cluster) -> dict[str, object]:
    return {
        "schema": "dryfit.topology/1",
        "name": cluster.name,
        "network": cluster.network,
        "devices": [
            {"name": d.name, "node": d.node, "local": d.local, "gpu": d.gpu.name}
            for d in cluster.devices
        ],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "kind": link.kind,
                "bytes_per_s": link.bytes_per_s,
                "latency_s": link.latency_s,
            }
            for link in cluster.links
        ],
    }


def program(asked: Asked) -> Shown:
    """What one rank issues."""
    from simulator.program.show import show_program

    scenario = asked.load()
    lines = list(show_program(_program(scenario)))
    return Shown(
        text=lambda: "\n".join(lines),
        data=lambda: {"schema": "dryfit.program/1", "scenario": scenario.name, "lines": lines},
    )


def _program(scenario: Scenario) -> Program:
    from simulator.lowering.lower import decoder_of, lower

    return lower(decoder_of(scenario.model, scenario.plan), scenario.plan, steps=2)


def classes(asked: Asked) -> Shown:
    """Ranks that must behave alike."""
    from simulator.cli.output import table
    from simulator.deploy import deploy
    from simulator.plan.mesh import mesh_of
    from simulator.report.words import rank_list
    from simulator.run import cluster_of

    scenario = asked.load()
    mesh = mesh_of(scenario.plan.parallelism)
    found = deploy(_program(scenario), cluster_of(scenario), mesh).classes
    rows = [[str(c.index), c.gpu.name, str(len(c.ranks)), rank_list(c.ranks)] for c in found]
    return Shown(
        text=lambda: table(["class", "gpu", "ranks", "which"], rows, numbers=["class", "ranks"]),
        data=lambda: {
            "schema": "dryfit.classes/1",
            "scenario": scenario.name,
            "classes": [
                {"class": c.index, "gpu": c.gpu.name, "ranks": list(c.ranks)} for c in found
            ],
        },
    )


def curve(asked: Asked) -> Shown:
    """Memory at every framework hook of the peak rank."""
    from simulator.cli.output import table
    from simulator.run import run
    from simulator.trace.curve import curve_json, curve_points
    from simulator.units import format_bytes, format_time

    trace = run(asked.load())
    return Shown(
        text=lambda: table(
            ["step", "mark", "allocated", "time"],
            [
                [str(step), mark, format_bytes(size), "" if at is None else format_time(at)]
                for step, mark, size, _, at in curve_points(trace)
            ],
            numbers=["step", "allocated", "time"],
        ),
        data=lambda: curve_json(trace),
    )
