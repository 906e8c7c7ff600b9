"""The work that is timed, with the seconds it may take on one core."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

SMALL, LARGE = "llama2-7b-fsdp2-8xa100", "llama3-70b-fsdp2-64xh100"
TIMEOUTS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``work`` is called ``best_of`` times; ``target_s`` is what the quickest may take.

    ``met``: whether this version meets the target; one that it doesn't is printed, not asserted.
    """

    name: str
    target_s: float | None
    work: Callable[[], object]
    best_of: int = 5
    met: bool = True

    def seconds(self) -> float:
        """The quickest of the runs."""
        return min(_timed(self.work) for _ in range(self.best_of))


def _timed(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def simpy_loop() -> None:
    """The unit: a bare loop of timeouts."""
    import simpy

    environment = simpy.Environment()

    def ticking():
        for _ in range(TIMEOUTS):
            yield environment.timeout(1)

    environment.process(ticking())
    environment.run()


def process(*arguments: str) -> Callable[[], object]:
    """The whole process of one command."""
    command = [str(Path(sys.executable).with_name("dryfit")), *arguments]
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def in_process(name: str, *, fold: bool = True, **changes: object) -> Callable[[], object]:
    """Engine and memory of two steps, from a resolved scenario to a result."""
    from simulator.run import run
    from simulator.scenario import load, with_changes
    from simulator.trace.result import summarise

    scenario = with_changes(load(name), changes)
    return lambda: summarise(run(scenario, steps=2, fold=fold))


def memory_only(answers: int) -> Callable[[], object]:
    """Memory of ``answers`` micro-batches, from resolved scenarios, nothing kept in between."""
    from simulator.run import run
    from simulator.scenario import load, with_changes
    from simulator.trace.result import summarise

    base = load(SMALL)
    scenarios = [with_changes(base, {"training.micro_batch": n + 1}) for n in range(answers)]
    return lambda: [summarise(run(each, memory_only=True)) for each in scenarios]


def rows() -> tuple[Row, ...]:
    """Every row that this version can be asked for."""
    on_512 = {"cluster.nodes": 64}
    return (
        Row(name="dryfit --help, whole process", target_s=0.15, work=process("--help")),
        Row(
            name="dryfit run, 7B on 8 GPUs, whole process", target_s=0.8, work=process("run", SMALL)
        ),
        Row(name="7B on 8 GPUs, two steps", target_s=0.05, work=in_process(SMALL)),
        Row(name="70B on 512 GPUs, folded", target_s=0.3, work=in_process(LARGE, **on_512)),
        Row(
            name="70B on 512 GPUs, every rank on its own",
            target_s=30,
            work=in_process(LARGE, fold=False, **on_512),
            best_of=1,
        ),
        Row(name="memory only, 30 answers", target_s=0.1, work=memory_only(30), met=False),
    )
