"""Play a deployment: hosts, streams and links against one clock."""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment
from simpy.core import SimTime
from simpy.events import NORMAL, Event, EventPriority

from simulator.deploy.deployment import Deployment, RankClass
from simulator.engine.communicator import Communicator
from simulator.engine.compile import COMPUTE, HostCosts, compile_block
from simulator.engine.deadlock import SHOWN, waits
from simulator.engine.device import Device
from simulator.engine.fabric import Fabric
from simulator.engine.host import HostRun
from simulator.engine.issue import Issued, issue
from simulator.engine.prices import Prices
from simulator.engine.recorder import HOST_NAME, Names, Recorder, call_times
from simulator.engine.stream import IDLE_COMMUNICATION, IDLE_HOST, StreamRun
from simulator.errors import DeadlockError
from simulator.trace.timeline import CallTimes, EngineCounts, Timeline


class Clock(Environment):
    """SimPy's environment, counting what it is asked to schedule."""

    def __init__(self) -> None:
        """At time 0."""
        super().__init__()
        self.scheduled = 0

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: SimTime = 0) -> None:
        """Put ``event`` on the queue."""
        self.scheduled += 1
        super().schedule(event, priority, delay)


class RankRun:
    """The host thread and the streams of one class of ranks."""

    def __init__(
        self,
        env: Environment,
        rank_class: RankClass,
        issued: Issued,
        device: Device,
        communicators: Sequence[Communicator],
        recorder: Recorder,
    ) -> None:
        """Put the processes on the clock; ``communicators`` are by group class."""
        self.index, self.issued, self._recorder = rank_class.index, issued, recorder
        self.communicators = {
            axis: communicators[group] for axis, group in rank_class.groups.items()
        }
        self.host = HostRun(env, issued.pauses)
        self.streams = [
            StreamRun(
                env, self.index, stream, items, recorder, issued.optimizer,
                device if stream == COMPUTE else None,
            )
            for stream, items in enumerate(issued.streams)
        ]  # fmt: skip
        if issued.pauses:
            env.process(self.host.run(self.streams))
        for run in self.streams:
            if run.items:
                env.process(run.run(self.host, self.streams, self.communicators))

    def finish(self) -> CallTimes:
        """Account for the compute stream up to the end of the class; say when each call ran."""
        began = [self.host.time(*at) for at in self.issued.began]
        ended = [self.host.time(*at) for at in self.issued.ended]
        compute = self.streams[COMPUTE]
        call, at = len(began) - 1, compute.accounted
        for stream in sorted(self.streams, key=lambda stream: stream.accounted):
            if stream.accounted > at:
                name = stream.items[-1].name
                self._recorder.span(
                    self.index, COMPUTE, call, IDLE_COMMUNICATION, name, at, stream.accounted
                )
                at = stream.accounted
        if ended:
            self._recorder.span(self.index, COMPUTE, call, IDLE_HOST, HOST_NAME, at, ended[-1])
        return call_times(began, ended, compute.first, compute.last)


def play(deployment: Deployment, prices: Prices | None = None) -> Timeline:
    """The timeline of ``deployment`` under ``prices`` (default: those of ``timing``).

    Raises ``DeadlockError`` if streams are left with work and nothing happens any more, and
    ``ProgramError`` if members of a group issue different collectives.
    """
    prices = prices or Prices()
    env, names = Clock(), Names()
    recorder, fabric = Recorder(names), Fabric(deployment.capacities)
    devices = [Device(env, prices.overlap.compute) for _ in deployment.classes]
    communicators = [
        Communicator(env, fabric, group, devices, prices.overlap.communication)
        for group in deployment.groups
    ]
    issued = _issue_all(deployment.classes, prices, names)
    runs = [
        RankRun(env, rank_class, issued[i], devices[i], communicators, recorder)
        for i, rank_class in enumerate(deployment.classes)
    ]
    env.run()
    _check_finished(runs, names)
    calls = tuple(run.finish() for run in runs)
    return Timeline(
        class_of_rank=deployment.class_of_rank,
        spans=recorder.spans(),
        calls=calls,
        counts=EngineCounts(
            classes=len(runs),
            events=env.scheduled,
            launches=sum(run.issued.launches for run in runs),
            collectives=sum(communicator.played for communicator in communicators),
        ),
    )


def _issue_all(classes: Sequence[RankClass], prices: Prices, names: Names) -> list[Issued]:
    """What each class issues; classes of one program on one GPU model share it."""
    costs = HostCosts(prices.host_launch_ns, prices.host_collective_ns, prices.host_event_ns)
    done: dict[int, list[tuple[RankClass, Issued]]] = {}
    result = []
    for rank_class in classes:
        program = rank_class.program
        known = done.setdefault(id(program), [])
        issued = next((i for twin, i in known if twin.gpu == rank_class.gpu), None)
        if issued is None:
            compiled = [
                compile_block(block, prices.launch_ns(block, rank_class.gpu), costs)
                for block in program.blocks
            ]
            issued = issue(program, compiled, names, prices.serial_groups)
            known.append((rank_class, issued))
        result.append(issued)
    return result


def _check_finished(runs: Sequence[RankRun], names: Names) -> None:
    stuck = [
        sentence
        for run in runs
        for sentence in waits(run.index, run.host, run.streams, run.communicators, names.all())
    ]
    if stuck:
        more = f"\n  and {len(stuck) - SHOWN} more" if len(stuck) > SHOWN else ""
        raise DeadlockError("nothing can go on:\n  " + "\n  ".join(stuck[:SHOWN]) + more)
