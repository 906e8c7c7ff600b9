"""Topologies by name: one file each in ``topologies/``, or beside the scenario."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Origin, origin_of
from simulator.errors import UserError, did_you_mean
from simulator.hardware.builders import BUILDERS, Builder, Request
from simulator.hardware.catalogue import read_gpu
from simulator.hardware.cluster import Cluster
from simulator.hardware.gpu import Gpu
from simulator.hardware.inherit import Stamped, chain, whole
from simulator.hardware.lookup import find_file, names
from simulator.hardware.section import Section

MAX_NODES = 65_536


NETWORKS = (
    "none",
    *("ib-edr", "ib-hdr", "ib-ndr", "ib-xdr", "ib", "roce"),
    *("efa", "efa1", "efa2", "efa3", "efa4"),
    *("tcp", "tcpx", "tcpxo", "slingshot"),
)
"""Kinds of network between nodes. Those with latencies of their own are in ``timing``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one node cost an hour, on demand, when the list was read: an indication, no more."""

    usd_per_hour: float
    as_of: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpec:
    """A topology file as read: what one node is and how nodes are joined, not how many.

    ``gpu`` is its GPU's name and ``gpu_facts`` what is known of it. ``network`` is the kind of
    the network between nodes. ``host_bytes`` is the memory of one node's host, 0 where the file
    doesn't say; so is ``price`` None. ``builder`` holds the parameters of the shape.
    """

    name: str
    path: Path
    gpu: str
    gpu_facts: Gpu
    network: str
    host_bytes: int
    source: str
    price: Price | None
    builder: Builder

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        return self.builder.gpus_per_node

    @property
    def max_nodes(self) -> int:
        """How many nodes can be booked: one where they have no network."""
        return 1 if self.network == "none" else MAX_NODES


def find_topology(name: str, beside: Path | None = None) -> TopologySpec:
    """The topology called ``name``, from a file beside the scenario or from the packaged ones.

    Raises UnknownNameError, or UserError where its file, or its GPU's, is wrong.

    >>> find_topology("dgx-a100").gpus_per_node
    8
    """
    path = find_file("topology", name, beside)
    file = _read(chain("topology", path))
    return TopologySpec(
        name=path.stem,
        path=path,
        gpu=file.gpu,
        gpu_facts=read_gpu(_gpu_file(file, path.parent, beside)),
        network=file.network,
        host_bytes=file.host_bytes,
        source=file.source,
        price=file.price,
        builder=file.builder,
    )


def _gpu_file(file: _File, *beside: Path | None) -> Path:
    """The file of the topology's GPU. Raises ScenarioError."""
    try:
        return find_file("GPU", file.gpu, *beside)
    except UserError as error:
        mistakes = Mistakes()
        mistakes.add(file.gpu_origin, "gpu", str(error))
        raise mistakes.error() from None


def topology_names() -> tuple[str, ...]:
    """The topologies that come with dryfit."""
    return names("topology")


def build(
    spec: TopologySpec, nodes: int = 1, gpus_per_node: int | None = None, gpu: Gpu | None = None
) -> Cluster:
    """``nodes`` nodes of a topology, with fewer GPUs in each or another ``gpu`` if asked for.

    Raises UserError for fewer than one node or GPU, more than 65,536 nodes, more than one where
    there is no network, or more GPUs in a node than there are.

    >>> len(build(find_topology("dgx-h100"), nodes=4).devices)
    32
    """
    most = spec.gpus_per_node
    wanted = most if gpus_per_node is None else gpus_per_node
    if not 1 <= wanted <= most:
        raise UserError(
            f"cluster.gpus_per_node: is {wanted}; a node of {spec.name} has 1 to {most} GPUs"
        )
    if not 1 <= nodes <= MAX_NODES:
        raise UserError(f"cluster.nodes: is {nodes}; it must be 1 to {MAX_NODES:,}")
    if nodes > spec.max_nodes:
        raise UserError(f"cluster.nodes: is {nodes}; nodes of {spec.name} have no network between")
    return spec.builder.build(
        Request(
            name=spec.name if nodes == 1 else f"{spec.name} × {nodes}",
            network=spec.network,
            host_bytes=spec.host_bytes,
            nodes=nodes,
            gpus=wanted,
            gpu=gpu or spec.gpu_facts,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What stands in one file: the GPU by its name."""

    gpu: str
    gpu_origin: Origin
    network: str
    host_bytes: int
    source: str
    price: Price | None
    builder: Builder


@lru_cache(maxsize=128)
def _read(files: tuple[Stamped, ...]) -> _File:
    mistakes = Mistakes()
    tree = whole(files, mistakes)
    with Section(tree, mistakes).closing() as file:
        found = _File(
            gpu=file.text("gpu"),
            gpu_origin=origin_of(tree, ("gpu",)),
            network=_network(file),
            host_bytes=file.size("host_memory") if file.has("host_memory") else 0,
            source=file.text("source"),
            price=_price(file),
            builder=_builder(file).read(file),
        )
    mistakes.raise_any()
    return found


def _price(file: Section) -> Price | None:
    if not file.has("price"):
        return None
    with file.section("price").closing() as section:
        return Price(
            usd_per_hour=section.number("usd_per_hour", 0, 100_000),
            as_of=section.text("as_of"),
            source=section.text("source"),
        )


def _network(file: Section) -> str:
    name = file.text("network")
    if name and name not in NETWORKS:
        file.wrong("network", f"unknown network {name!r}{did_you_mean(name, NETWORKS)}")
    return name


def _builder(file: Section) -> type[Builder]:
    name = file.text("builder")
    if name not in BUILDERS:
        file.wrong("builder", f"unknown builder {name!r}{did_you_mean(name, BUILDERS)}")
        file.give_up()
    return BUILDERS[name]
