"""One scenario's ``measured:`` held against its result: a case a figure, with error and verdict.

A figure is only held against a measurement of the same counter: allocated is never compared with
reserved. What cannot be compared is skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.scenario.bounds import Measured
from simulator.trace.result import Result

BOUNDS = {"allocated": 5.0, "reserved": 8.0, "step_time": 20.0}
"""Percent that nine of ten cases must stay within: memory by its counter, and step time."""

NEAR = 0.05
"""A fits verdict counts only where the peak is this share of the device away from its limit."""

_COUNTERS = ("allocated", "active", "reserved", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured figure and dryfit's. ``verdict``: within, outside, right, wrong, miss or shown.

    ``shown`` cases don't count: their source is not to be trusted that far. A ``miss`` is a case
    that dryfit can't express, and ``why`` says what of it; ``predicted`` is None then.
    """

    id: str
    source: str
    quantity: str
    counter: str | None
    unit: str
    predicted: float | bool | None
    measured: float | bool
    error_pct: float | None
    verdict: str
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether the case enters the summary."""
        return self.verdict != "shown"

    def to_json(self) -> dict[str, object]:
        """The entry of ``cases``."""
        shown = [name for name in self.__slots__ if name != "why" or self.why]
        return {name: getattr(self, name) for name in shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A measured figure that no prediction can be held against, and why."""

    id: str
    why: str

    def to_json(self) -> dict[str, str]:
        """The entry of ``skipped``."""
        return {"id": self.id, "why": self.why}


def held_against(name: str, measured: Measured, result: Result) -> Iterator[Case | Skip]:
    """Every measured figure of the scenario ``name``, compared or skipped."""
    yield from _memory(name, measured, result)
    yield from _step_time(name, measured, result)
    if measured.fits is not None:
        yield _fits(name, measured, measured.fits, result)


def missed(name: str, measured: Measured, why: str) -> Iterator[Case]:
    """Every measured figure of a case that dryfit can't express."""
    for quantity, counter, unit, actual in _figures(measured):
        yield Case(
            id=name,
            source=measured.source or "not stated",
            quantity=quantity,
            counter=counter,
            unit=unit,
            predicted=None,
            measured=actual,
            error_pct=None,
            verdict="shown" if measured.trust == "C" else "miss",
            why=why,
        )


def _figures(measured: Measured) -> Iterator[tuple[str, str | None, str, float | bool]]:
    for counter in _COUNTERS:
        actual = getattr(measured, f"peak_{counter}")
        if actual is not None:
            yield "peak_memory", counter, "bytes", actual
    if measured.step_time is not None:
        yield "step_time", None, "s", measured.step_time
    elif measured.tokens_per_s_per_gpu is not None:
        yield "step_time", None, "tokens/s/GPU", measured.tokens_per_s_per_gpu
    if measured.fits is not None:
        yield "fits", None, "bool", measured.fits


def _memory(name: str, measured: Measured, result: Result) -> Iterator[Case | Skip]:
    for counter in _COUNTERS:
        actual = getattr(measured, f"peak_{counter}")
        if actual is None:
            continue
        predicted = _peak(result, counter, measured.of)
        if predicted is None:
            why = f"{counter} memory was measured, and no allocator was simulated (allocator: off)"
            yield Skip(id=name, why=why)
        else:
            yield _numbers(name, measured, "peak_memory", counter, "bytes", predicted, actual)
    if measured.host_peak is not None:
        yield Skip(id=name, why="host memory was measured, and this version does not predict it")


def _peak(result: Result, counter: str, of: str | int) -> int | None:
    """The predicted peak of one counter: the largest rank's, the last's, or one rank's."""
    found: int | None
    if of == "max":
        found = getattr(result.memory, f"peak_{counter}_bytes")
    else:
        rank = result.ranks[-1 if of == "last" else int(of)]
        found = getattr(rank, f"peak_{counter}_bytes", None)
    return found


def _step_time(name: str, measured: Measured, result: Result) -> Iterator[Case | Skip]:
    actual = measured.step_time
    if actual is None and measured.tokens_per_s_per_gpu:
        actual = result.trace.header.tokens / measured.tokens_per_s_per_gpu
    if actual is not None and result.at_least:
        yield Skip(id=name, why="the step time was measured, and part of the step is not timed")
    elif actual is not None and result.step_time_s is not None:
        yield _numbers(name, measured, "step_time", None, "s", result.step_time_s, actual)


def _numbers(
    name: str,
    measured: Measured,
    quantity: str,
    counter: str | None,
    unit: str,
    predicted: float,
    actual: float,
) -> Case:
    error = 100 * (predicted - actual) / actual
    bound = BOUNDS.get(counter or quantity)
    verdict = "within" if bound is not None and abs(error) <= bound else "outside"
    return Case(
        id=name,
        source=measured.source or "not stated",
        quantity=quantity,
        counter=counter,
        unit=unit,
        predicted=predicted,
        measured=actual,
        error_pct=error,
        verdict="shown" if measured.trust == "C" or bound is None else verdict,
    )


def _fits(name: str, measured: Measured, actual: bool, result: Result) -> Case:
    memory = result.memory
    near = abs(memory.headroom_bytes) <= NEAR * memory.usable_bytes
    right = memory.fits is actual
    return Case(
        id=name,
        source=measured.source or "not stated",
        quantity="fits",
        counter=memory.counter,
        unit="bool",
        predicted=memory.fits,
        measured=actual,
        error_pct=None,
        verdict="right" if right else "shown" if near or measured.trust == "C" else "wrong",
    )
