"""Wall-clock time of the parts of a command, for ``--profile``. It never enters a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Adds up seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the time of the block to ``part``."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - begin

    def report(self, events: int) -> str:
        """One line a part, then the total and how many engine events a second that was."""
        lines = [f"  {part:<12}{1e3 * seconds:9.1f} ms" for part, seconds in self.seconds.items()]
        total = sum(self.seconds.values())
        simulated = self.seconds.get("simulation", 0.0)
        rate = f", {events:,} engine events" if events and simulated else ""
        return "\n".join(
            ["dryfit's own time:", *lines, f"  {'all':<12}{1e3 * total:9.1f} ms{rate}"]
        )
