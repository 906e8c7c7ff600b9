"""One GPU (or the GPUs of one class of ranks): what its compute stream and collectives share.

While a collective runs on a device the segment of its compute stream runs slower, and while a
segment runs the collective does (``timing.prices.Overlap``).
"""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment

from simulator.engine.activity import Activity
from simulator.engine.transfer import Transfer
from simulator.timing.prices import Ratio


class Device:
    """``segment`` is what the compute stream runs; ``transfers`` the collectives under way."""

    __slots__ = ("_env", "_full", "_shared", "segment", "transfers")

    def __init__(self, env: Environment, shared: Ratio) -> None:
        """``shared``: the rate of kernels while a collective runs here, ``Overlap.compute``."""
        self._env = env
        self._shared, self._full = shared
        self.segment: Activity | None = None
        self.transfers: dict[Transfer, None] = {}

    @property
    def computing(self) -> bool:
        """Whether the compute stream runs a segment."""
        return self.segment is not None

    def run(self, work: int, arrivals: Sequence[tuple[int, int]]) -> Activity:
        """Start a segment of ``work`` ns, and of more that the host has yet to issue."""
        full = self._full
        rate = self._shared if self.transfers else full
        starts = self.segment is None
        later = tuple((at, more * full) for at, more in arrivals)
        self.segment = activity = Activity(self._env, work * full, rate, later)
        if starts:
            for transfer in self.transfers:
                transfer.device_computes(1)
        return activity

    def rest(self) -> None:
        """The compute stream has nothing to run."""
        if self.segment is not None:
            self.segment = None
            for transfer in self.transfers:
                transfer.device_computes(-1)

    def enter(self, transfer: Transfer) -> None:
        """A collective starts here."""
        self.transfers[transfer] = None
        self._change_rate()

    def leave(self, transfer: Transfer) -> None:
        """A collective is over."""
        del self.transfers[transfer]
        self._change_rate()

    def _change_rate(self) -> None:
        if self.segment is not None:
            self.segment.change(self._shared if self.transfers else self._full)
