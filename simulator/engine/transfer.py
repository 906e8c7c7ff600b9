"""A collective under way: a latency that holds no bandwidth, then a flow on its links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from simpy import Environment, Event, Timeout

from simulator.deploy.deployment import Traffic
from simulator.engine.activity import Activity
from simulator.timing.prices import Ratio

NS_PER_S = 1_000_000_000


class Member(Protocol):
    """What a transfer asks of each device that takes part in it."""

    @property
    def computing(self) -> bool:
        """Whether kernels run on its compute stream."""
        ...

    def enter(self, transfer: Transfer) -> None:
        """The transfer starts."""
        ...

    def leave(self, transfer: Transfer) -> None:
        """The transfer is over."""
        ...


class Network(Protocol):
    """Who sets the rates of flows (``fabric.Fabric``)."""

    def add(self, transfer: Transfer) -> None:
        """The flow begins; its ``set_share`` and those of its neighbours are called."""
        ...

    def remove(self, transfer: Transfer) -> None:
        """The flow has ended."""
        ...


class Transfer:
    """``size`` bytes of message at ``share`` bytes/s, ``slowed`` while a member computes."""

    __slots__ = (
        "_computing", "_done", "_env", "_flow", "_members", "_network", "_size", "_slowed",
        "share", "started", "traffic",
    )  # fmt: skip

    def __init__(
        self,
        env: Environment,
        network: Network,
        traffic: Traffic,
        size: int,
        members: Sequence[Member],
        slowed: Ratio,
        done: Callable[[], object],
    ) -> None:
        """Start now; ``done`` is called at the end. ``slowed``: ``Overlap.communication``."""
        self._env, self._network, self._size, self._slowed = env, network, size, slowed
        self._members, self._done = members, done
        self.traffic, self.share, self.started = traffic, 0, int(env.now)
        self._flow: Activity | None = None
        self._computing = sum(member.computing for member in members)
        for member in members:
            member.enter(self)
        self._after(traffic.latency_ns, self._begin_flow)

    def device_computes(self, change: int) -> None:
        """One more (or one fewer: -1) of the members runs kernels."""
        self._computing += change
        if self._flow is not None:
            self._flow.change(self._rate())

    def set_share(self, share: int) -> None:
        """The network grants ``share`` bytes of message a second."""
        if share == self.share:
            return
        self.share = share
        if self._flow is None:
            self._flow = Activity(self._env, self._size * NS_PER_S, self._rate())
            self._flow.ends.callbacks.append(self._end_flow)
        else:
            self._flow.change(self._rate())

    def _rate(self) -> int:
        slowed, full = self._slowed
        return self.share * slowed // full if self._computing else self.share

    def _after(self, delay: int, callback: Callable[[Event], None]) -> None:
        Timeout(self._env, delay).callbacks.append(callback)

    def _begin_flow(self, _: Event) -> None:
        if self._size and self.traffic.weights:
            self._network.add(self)
        else:
            self._leave()

    def _end_flow(self, _: Event) -> None:
        self._flow = None
        self._network.remove(self)
        self._leave()

    def _leave(self) -> None:
        for member in self._members:
            member.leave(self)
        self._done()
