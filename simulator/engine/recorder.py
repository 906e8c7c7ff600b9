"""What happened, as rows while the clock runs and as columns after it has stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.trace.timeline import CallTimes, IntColumn, Spans

HOST = "host"
"""What a stream waits for when nothing has been launched."""

HOST_NAME = 0
"""The number of ``HOST``."""


class Names:
    """Strings as numbers."""

    def __init__(self) -> None:
        """Only ``HOST``."""
        self._index = {HOST: HOST_NAME}

    def __call__(self, name: str) -> int:
        """The number of ``name``."""
        return self._index.setdefault(name, len(self._index))

    def all(self) -> tuple[str, ...]:
        """Every name, by number."""
        return tuple(self._index)


Row = tuple[int, int, int, int, int, int, int]


class Recorder:
    """Collects spans of all classes."""

    def __init__(self, names: Names) -> None:
        """No rows yet; spans refer to ``names``."""
        self.names = names
        self._rows: list[Row] = []

    def span(
        self, rank_class: int, stream: int, call: int, kind: int, name: int, start: int, end: int
    ) -> None:
        """One span from ``start`` to ``end`` ns; empty ones leave no trace."""
        if end > start:
            self._rows.append((rank_class, stream, call, kind, name, start, end))

    def spans(self) -> Spans:
        """All spans by class, stream and start."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 7)
        rows = rows[np.lexsort((rows[:, 5], rows[:, 1], rows[:, 0]))]
        columns = [np.ascontiguousarray(column) for column in rows.T]
        return Spans(
            rank_class=columns[0],
            stream=columns[1],
            call=columns[2],
            kind=columns[3],
            name=columns[4],
            start=columns[5],
            end=columns[6],
            names=self.names.all(),
        )


def call_times(
    began: Sequence[int], ended: Sequence[int], first: Mapping[int, int], last: Mapping[int, int]
) -> CallTimes:
    """Columns by call; ``first`` and ``last`` bound the compute work of the calls that have any.

    A call without any is where the stream stands: at the end of the call before.
    """
    starts, ends, at = [], [], 0
    for call in range(len(began)):
        starts.append(first.get(call, at))
        at = last.get(call, at)
        ends.append(at)
    return CallTimes(
        host_start=_column(began),
        host_end=_column(ended),
        compute_start=_column(starts),
        compute_end=_column(ends),
    )


def _column(values: Sequence[int]) -> IntColumn:
    return np.array(values, dtype=np.int64)
