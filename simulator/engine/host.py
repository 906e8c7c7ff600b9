"""The host thread of one class of ranks: it runs ahead, and stands still only at a HostWait."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from simpy import Environment, Event, Timeout

from simulator.engine.issue import HostPause
from simulator.engine.stream import StreamRun


class HostRun:
    """``begins[e]`` is when epoch e began, in ns; the last one is the current epoch."""

    def __init__(self, env: Environment, pauses: Sequence[HostPause]) -> None:
        """A host that will stop at ``pauses``, in order."""
        self._env, self._pauses = env, pauses
        self._waiting: dict[int, Event] = {}
        self.begins = [0]

    def run(self, streams: Sequence[StreamRun]) -> Generator[Event, None, None]:
        """Go from pause to pause."""
        for pause in self._pauses:
            at = self.begins[-1] + pause.at
            if at > self._env.now:
                yield Timeout(self._env, at - self._env.now)
            stream, count = pause.fence
            if streams[stream].passed < count:
                yield streams[stream].passing(count)
            self.begins.append(int(self._env.now))
            if waiting := self._waiting.pop(len(self.begins) - 1, None):
                waiting.succeed()

    def entering(self, epoch: int) -> Event:
        """Fires when ``epoch`` begins."""
        if epoch not in self._waiting:
            self._waiting[epoch] = Event(self._env)
        return self._waiting[epoch]

    def time(self, epoch: int, offset: int) -> int:
        """The clock ``offset`` ns into ``epoch``."""
        return self.begins[epoch] + offset

    @property
    def blocked_at(self) -> HostPause | None:
        """The pause that it has not come past, once nothing happens any more."""
        done = len(self.begins) - 1
        return self._pauses[done] if done < len(self._pauses) else None
