"""Two or more runs side by side: what differs in memory and time, and from what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import ScenarioError, UserError
from simulator.run import STEPS, run
from simulator.scenario import Scenario, load, with_changes
from simulator.scenario.precision import spelled_out
from simulator.trace.result import Result, summarise

Source = str | Path | Mapping[str, Any] | Scenario

_NO_SETTINGS = ("name", "what_if", "expect", "measured")
"""Keys that change nothing of a run."""

_PRECISION = "training.precision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated scenario. ``settings``: every value as text, by dotted key."""

    name: str
    settings: Mapping[str, str]
    result: Result

    def to_json(self) -> dict[str, object]:
        """Its figures; bytes and seconds."""
        memory = self.result.memory
        return {
            "name": self.name,
            "world_size": self.result.world_size,
            "fits": memory.fits,
            "counter": memory.counter,
            "peak_allocated_bytes": memory.peak_allocated_bytes,
            "peak_reserved_bytes": memory.peak_reserved_bytes,
            "peak_device_bytes": memory.peak_device_bytes,
            "headroom_bytes": memory.headroom_bytes,
            "peak_step": memory.peak_step,
            "peak_phase": memory.peak_phase,
            "peak_at": memory.peak_at,
            **figures(self.result),
            "step_time_is_lower_bound": self.result.at_least,
            "warnings": list(self.warnings),
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its answer says of itself."""
        return self.result.trace.header.warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One part of memory (bytes) or of the step (seconds), in the base and in the change."""

    part: str
    base: float
    value: float

    @property
    def difference(self) -> float:
        """What the change adds."""
        return self.value - self.base

    def to_json(self) -> dict[str, object]:
        """The entry of ``causes``."""
        return {
            "part": self.part,
            "base": self.base,
            "value": self.value,
            "difference": self.difference,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A run beside the base. ``settings``: (key, base's value, its value) where they differ."""

    base: Run
    run: Run

    @property
    def settings(self) -> tuple[tuple[str, str, str], ...]:
        """Values that differ, derived ones too; a dash where a key is not there."""
        old, new = self.base.settings, self.run.settings
        keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
        return tuple((key, old.get(key, "–"), new.get(key, "–")) for key in keys)

    @property
    def memory(self) -> tuple[Cause, ...]:
        """The peak by category, largest difference first; equal ones left out."""
        old = self.base.result.memory.breakdown_at_peak
        return _causes(old, self.run.result.memory.breakdown_at_peak)

    @property
    def time(self) -> tuple[Cause, ...]:
        """The step by its parts, largest difference first; empty without times."""
        old, new = (each.result.time.to_json() for each in (self.base, self.run))
        if None in old.values() or None in new.values():
            return ()
        return _causes(_parts(old), _parts(new))

    def difference(self, figure: str) -> float | None:
        """The change's figure less the base's, None where either is not known."""
        old, new = (each.to_json()[figure] for each in (self.base, self.run))
        if not isinstance(old, int | float) or not isinstance(new, int | float):
            return None
        return new - old

    def to_json(self) -> dict[str, object]:
        """The entry of ``changes``."""
        return {
            **self.run.to_json(),
            "differences": {figure: self.difference(figure) for figure in DIFFERENCES},
            "settings": [
                {"key": key, "base": old, "value": new} for key, old, new in self.settings
            ],
            "causes": {
                "memory_bytes": [cause.to_json() for cause in self.memory],
                "time_s": [cause.to_json() for cause in self.time],
            },
        }


DIFFERENCES = (
    "peak_allocated_bytes",
    "headroom_bytes",
    "step_time_s",
    "tokens_per_s_per_gpu",
    "mfu",
)
"""Figures of which a comparison gives the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A base and what it is compared with."""

    base: Run
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, object]:
        """The object ``dryfit.compare/1``."""
        return {
            "schema": "dryfit.compare/1",
            "base": self.base.to_json(),
            "changes": [change.to_json() for change in self.changes],
        }


def compare(
    base: Source,
    other: Source | None = None,
    /,
    *,
    steps: int | None = None,
    memory_only: bool = False,
    **set: Any,
) -> Comparison:
    """Simulate two scenarios, or one with and without changes, and say what differs.

    >>> found = compare("llama2-7b-fsdp2-8xa100", **{"training.micro_batch": 1}, memory_only=True)
    >>> found.changes[0].memory[0].part
    'activations'
    """
    first = _loaded(base)
    if other is None and not set:
        raise UserError("compare needs a second scenario, or a change")
    second = first if other is None else _loaded(other)
    name = second.name if other is not None else ", ".join(f"{k}={v}" for k, v in set.items())
    if set:
        second = with_changes(second, set)
    return side_by_side(
        [(first.name, first), (name, second)],
        steps=STEPS if steps is None else steps,
        memory_only=memory_only,
    )


def variants_of(scenario: Scenario) -> list[tuple[str, Scenario]]:
    """The scenario under each of its ``what_if:``. Raises UserError, naming the entry."""
    found = []
    for entry in scenario.what_if:
        try:
            found.append((entry.name, with_changes(scenario, entry.set)))
        except ScenarioError as error:
            said = str(error).replace("change: ", "")
            raise UserError(f"what_if {entry.name!r}: {said}") from None
        except UserError as error:
            raise UserError(f"what_if {entry.name!r}: {error}") from None
    return found


def side_by_side(
    named: Sequence[tuple[str, Scenario]],
    result: Result | None = None,
    *,
    steps: int = STEPS,
    memory_only: bool = False,
) -> Comparison:
    """Simulate each scenario and hold all against the first. ``result``: the first one's own."""
    base, *others = (
        Run(
            name=name,
            settings=_settings(scenario),
            result=result
            if result is not None and scenario is named[0][1]
            else summarise(run(scenario, steps=steps, memory_only=memory_only)),
        )
        for name, scenario in named
    )
    return Comparison(base=base, changes=tuple(Change(base=base, run=other) for other in others))


def figures(result: Result) -> dict[str, float | None]:
    """The speed of a run; None without times."""
    return {
        "step_time_s": result.step_time_s,
        "tokens_per_s_per_gpu": result.tokens_per_s_per_gpu,
        "mfu": result.mfu,
    }


def _loaded(source: Source) -> Scenario:
    return source if isinstance(source, Scenario) else load(source)


def _settings(scenario: Scenario) -> dict[str, str]:
    found = {
        key: text
        for key, (text, _) in scenario.origins.items()
        if key.partition(".")[0] not in _NO_SETTINGS
    }
    recipe = found.pop(_PRECISION, None)
    if recipe is None:
        return found
    return found | {f"{_PRECISION}.{key}": str(v) for key, v in spelled_out(recipe).items()}


def _parts(times: Mapping[str, float | None]) -> dict[str, float]:
    return {name.removesuffix("_s"): value or 0.0 for name, value in times.items()}


def _causes(old: Mapping[str, float], new: Mapping[str, float]) -> tuple[Cause, ...]:
    parts = dict.fromkeys((*old, *new))
    causes = (Cause(part=part, base=old.get(part, 0), value=new.get(part, 0)) for part in parts)
    differing = (cause for cause in causes if cause.difference)
    return tuple(sorted(differing, key=lambda cause: (-abs(cause.difference), cause.part)))
