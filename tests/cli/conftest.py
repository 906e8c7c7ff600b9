from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from simulator.cli.guard import run

TINY = """\
name: tiny
model: {preset: llama-2-7b, layers: 2, hidden: 512, ffn: 1024, heads: 8, kv_heads: 8, vocab: 2048}
cluster: {topology: dgx-a100, nodes: 1}
parallelism: {framework: fsdp2}
training: {seq_len: 512, micro_batch: 1, precision: fsdp-mixed, optimizer: adamw-fused}
"""
"""A scenario that simulates in no time."""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Dryfit(Protocol):
    def __call__(self, *arguments: str | Path) -> Outcome: ...


@pytest.fixture
def dryfit(capsys: pytest.CaptureFixture[str]) -> Dryfit:
    """The command line, in this process: its exit code and what it wrote."""

    def call(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return path
