"""What every builder of clusters can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from simulator.hardware.cluster import Cluster
from simulator.hardware.gpu import Gpu
from simulator.hardware.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How much of a topology to build: ``gpus`` of each of ``nodes`` nodes, all of one model."""

    name: str
    network: str
    host_bytes: int
    nodes: int
    gpus: int
    gpu: Gpu


class Builder(Protocol):
    """A shape of cluster, with the parameters of one topology file."""

    @classmethod
    def read(cls, file: Section) -> Self:
        """Take its own keys from a topology file. Raises UserError."""
        ...

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs a node has."""
        ...

    def build(self, request: Request) -> Cluster:
        """The cluster; ``request`` asks for at most what there is."""
        ...
