"""Streams and events without a device: they only know which stream the host has chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Event:
    """An event that has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> Event:
        """Nothing to wait for."""
        return self

    def wait(self, *_: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """It has happened."""
        return True


class FakeStream:
    """A stream; ``name`` is how allocations on it are labelled."""

    def __init__(self, *_: Any, name: str = "side", **__: Any) -> None:
        self.name = name

    def wait_stream(self, other: FakeStream) -> None:
        """Order is the host's."""

    def wait_event(self, event: Event) -> None:
        """Order is the host's."""

    def record_event(self, *_: Any) -> Event:
        """An event that has happened."""
        return Event()

    def synchronize(self) -> None:
        """Nothing runs."""

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest, as on a GPU."""
        return (0, -1)


class Device:
    """What FSDP and DeviceMesh ask ``torch.cuda`` for."""

    Event = Event
    Stream = FakeStream

    def __init__(self) -> None:
        self.default = self.current = FakeStream(name="default")

    def current_stream(self, *_: Any) -> FakeStream:
        """The stream that the host has chosen."""
        return self.current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        """Choose a stream for a while."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def device_count(self) -> int:
        """Devices of the host: only DeviceMesh asks, to choose this rank's."""
        return 8

    def current_device(self) -> int:
        """Rank 0's."""
        return 0

    def set_device(self, *_: Any) -> None:
        """There is one."""

    def is_available(self) -> bool:
        """So it seems."""
        return True

    def is_initialized(self) -> bool:
        """So it seems."""
        return True

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        """A state of the right type."""
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, *_: Any) -> None:
        """Nothing is random."""


DEVICE = Device()
