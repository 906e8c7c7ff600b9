"""How far the host may run ahead of the device: ``_FreeEventQueue``."""

from __future__ import annotations

from collections import deque

from simulator.lowering.units import Unit

MOST = 2
"""All-gathers in flight (``_max_num_inflight_all_gathers``)."""

Freed = tuple[Unit | str, str]
"""Whose parameter was resharded, and the name of the event that says when it may go."""


class FreeEventQueue:
    """Events of reshardings that no later all-gather has waited for yet, oldest first.

    >>> queue = FreeEventQueue(limited=True)
    >>> queue.enqueue(("layers.0", "forward")), queue.dequeue_if_needed()
    (None, None)
    >>> queue.enqueue(("layers.1", "forward")), queue.dequeue_if_needed()
    (None, ('layers.0', 'forward'))
    """

    def __init__(self, *, limited: bool) -> None:
        self._limited = limited
        self._queue: deque[Freed] = deque()

    def enqueue(self, event: Freed) -> None:
        """A parameter was resharded."""
        if self._limited:
            self._queue.append(event)

    def dequeue_if_needed(self) -> Freed | None:
        """What the host waits for before the next all-gather."""
        return self._queue.popleft() if len(self._queue) >= MOST else None
