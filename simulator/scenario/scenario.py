"""A scenario as the rest of dryfit sees it: resolved, every value with its origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Scalar, leaves, plain
from simulator.errors import UnsupportedError, UserError
from simulator.model.config import ModelConfig
from simulator.plan.plan import Plan
from simulator.plan.versions import Software
from simulator.scenario.bounds import Expect, Measured
from simulator.scenario.what_if import WhatIf


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """What is booked. ``gpus_per_node`` and ``gpu`` are None where the topology's own hold."""

    topology: str
    nodes: int = 1
    gpus_per_node: int | None = None
    gpu: str | None = None
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorChoice:
    """Settings of the caching allocator, as ``PYTORCH_CUDA_ALLOC_CONF`` writes them.

    ``others``: settings that the run may have as well; their peaks are told beside its own.
    """

    settings: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One job on one cluster. ``warnings``: settings of it that have no effect.

    ``allocator`` None: bytes are sums of requests (``allocator: off``).
    ``source`` is the file's name, ``stdin`` or ``mapping``; ``directory`` the folder a topology
    file may lie in. ``document`` is what was written, ``complete`` the same with every default.
    """

    name: str
    model: ModelConfig
    cluster: ClusterSpec
    plan: Plan
    expect: Expect = field(default_factory=Expect)
    measured: Measured | None = None
    software: Software = field(default_factory=Software)
    allocator: AllocatorChoice | None = field(default_factory=AllocatorChoice)
    what_if: tuple[WhatIf, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str
    directory: Path | None = None
    document: Map = field(repr=False, compare=False)
    complete: Map = field(repr=False, compare=False)

    def located(self, error: UnsupportedError) -> UserError:
        """``error`` with the place of the key that asked for it, if it names one."""
        if not error.key:
            return error
        mistakes = Mistakes()
        mistakes.at(self.document, tuple(error.key.split(".")), str(error))
        return mistakes.error()

    @property
    def raw(self) -> dict[str, Any]:
        """What was written, changes included, as plain maps and values."""
        found: dict[str, Any] = plain(self.document)
        return found

    @property
    def resolved(self) -> dict[str, Any]:
        """Every value spelled out; loading it gives the same scenario again."""
        found: dict[str, Any] = plain(self.complete)
        return found

    @property
    def origins(self) -> dict[str, tuple[str, str]]:
        """By dotted key: the value as text, and ``file:line``, a flag or ``default``."""
        return {
            key: (leaf.text if isinstance(leaf, Scalar) else str(plain(leaf)), str(leaf.origin))
            for key, leaf in leaves(self.complete)
        }
