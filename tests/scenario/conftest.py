from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

from simulator.errors import UnknownNameError
from simulator.model.config import ModelConfig
from simulator.model.presets import PRESETS
from simulator.scenario import Scenario, load
from simulator.scenario.hf_file import read_hf_config

TINY = """\
name: tiny
model: llama-2-7b
cluster: {topology: dgx-a100, nodes: 1}
parallelism: {framework: fsdp2}
training: {seq_len: 512, micro_batch: 1}
"""
"""The shortest scenario."""

Load: TypeAlias = Callable[..., Scenario]


class FakeCatalogue:
    """Three topologies of eight GPUs, one GPU, and the real model presets."""

    topologies = ("dgx-a100", "dgx-h100", "hgx-h100-96gb")

    def model(self, name: str) -> ModelConfig:
        if name not in PRESETS:
            raise UnknownNameError("model", name, PRESETS)
        return PRESETS[name]

    def hf_config(self, path: str, beside: Path) -> ModelConfig:
        return read_hf_config(beside / path)

    def gpus_per_node(self, topology: str, beside: Path | None) -> int:
        if topology not in self.topologies:
            raise UnknownNameError("topology", topology, self.topologies)
        return 8

    def check_gpu(self, name: str, beside: Path | None) -> None:
        if name != "h200-sxm":
            raise UnknownNameError("gpu", name, ["h200-sxm"])

    def usable_bytes(self, topology: str, gpu: str | None, beside: Path | None) -> int:
        return 80 * 2**30 if gpu is None else 140 * 2**30


@pytest.fixture(scope="session")
def fake() -> FakeCatalogue:
    return FakeCatalogue()


@pytest.fixture
def load_text(tmp_path: Path, fake: FakeCatalogue) -> Load:
    """Load a scenario from text, as the file ``s.yaml``."""

    def call(text: str, sets: Iterable[str] = ()) -> Scenario:
        path = tmp_path / "s.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, sets, catalogue=fake)

    return call
