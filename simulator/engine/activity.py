"""Whatever takes time: work left, a rate, an end predicted again when the rate changes."""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment, Timeout


class Activity:
    """Work in progress at ``rate`` units a ns; ``ends`` fires when it is done.

    ``arrivals`` are (time, work) pairs still to come, in order of time: launches that the host
    has not issued yet. ``starved`` counts the ns without any work at hand. Integers throughout.
    """

    __slots__ = ("_arrivals", "_coming", "_env", "_since", "ends", "left", "rate", "starved")

    def __init__(
        self,
        env: Environment,
        work: int,
        rate: int,
        arrivals: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Start now, with ``work`` units at hand."""
        self._env, self._since = env, int(env.now)
        self.left, self.rate, self.starved = work, rate, 0
        self._arrivals, self._coming = arrivals, 0
        self.ends = Timeout(env, self._end() - self._since)

    def change(self, rate: int) -> None:
        """Go on at another rate. Who waits for ``ends`` waits for the new one; the old is void."""
        if rate == self.rate or self.ends.processed:
            return
        self.settle()
        self.rate, void = rate, self.ends
        self.ends = Timeout(self._env, self._end() - self._since)
        waiting, void.callbacks = void.callbacks, []
        self.ends.callbacks.extend(waiting)

    def settle(self) -> None:
        """Account for the work done up to now."""
        now = int(self._env.now)
        while self._coming < len(self._arrivals) and self._arrivals[self._coming][0] <= now:
            at, work = self._arrivals[self._coming]
            self._run(at)
            self.left += work
            self._coming += 1
        self._run(now)

    def _run(self, until: int) -> None:
        self.left -= self.rate * (until - self._since)
        if self.left < 0:
            self.starved += -self.left // self.rate
            self.left = 0
        self._since = until

    def _end(self) -> int:
        """When it will be done at this rate, rounded up to a ns."""
        at, left = self._since, self.left
        for index in range(self._coming, len(self._arrivals)):
            arrival, work = self._arrivals[index]
            left = max(0, left - self.rate * (arrival - at)) + work
            at = arrival
        return at - -left // self.rate
