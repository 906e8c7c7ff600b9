"""The one door from scenarios to what is built in: model presets, topologies, GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from simulator.errors import UnknownNameError
from simulator.model.config import ModelConfig


class Catalogue(Protocol):
    """What a scenario asks of the catalogues. A name that is not there: UnknownNameError."""

    def model(self, name: str) -> ModelConfig:
        """The shape of a preset."""
        ...

    def hf_config(self, path: str, beside: Path) -> ModelConfig:
        """The shape in a config.json, found from the folder ``beside``. Raises UserError."""
        ...

    def gpus_per_node(self, topology: str, beside: Path | None) -> int:
        """GPUs in a node of a topology, which may be a file ``beside`` the scenario."""
        ...

    def check_gpu(self, name: str, beside: Path | None) -> None:
        """Raise unless the GPU is known, or is a file ``beside`` the scenario."""
        ...

    def usable_bytes(self, topology: str, gpu: str | None, beside: Path | None) -> int:
        """Memory of ``gpu``, or of the topology's own where it is None."""
        ...


class BuiltIn:
    """The catalogues that come with dryfit."""

    def model(self, name: str) -> ModelConfig:
        """The shape of a preset."""
        from simulator.model.presets import PRESETS

        if name not in PRESETS:
            raise UnknownNameError("model", name, PRESETS)
        return PRESETS[name]

    def hf_config(self, path: str, beside: Path) -> ModelConfig:
        """The shape in a config.json, found from the folder ``beside``. Raises UserError."""
        from simulator.scenario.hf_file import read_hf_config

        return read_hf_config(beside / path)

    def gpus_per_node(self, topology: str, beside: Path | None) -> int:
        """GPUs in a node of a topology, which may be a file ``beside`` the scenario."""
        from simulator.hardware.topologies import find_topology

        return find_topology(topology, beside).gpus_per_node

    def check_gpu(self, name: str, beside: Path | None) -> None:
        """Raise unless the GPU is known, or is a file ``beside`` the scenario."""
        from simulator.hardware.catalogue import gpu

        gpu(name, beside)

    def usable_bytes(self, topology: str, gpu: str | None, beside: Path | None) -> int:
        """Memory of ``gpu``, or of the topology's own where it is None."""
        from simulator.hardware import catalogue, topologies

        if gpu is not None:
            return catalogue.gpu(gpu, beside).usable_bytes
        return topologies.find_topology(topology, beside).gpu_facts.usable_bytes
