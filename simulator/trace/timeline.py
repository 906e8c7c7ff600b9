"""WAIST 2, time: columns of what happened on each stream of each class of ranks.

All times are integer nanoseconds since the start of step 0. No physics after this point.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]


class SpanKind(IntEnum):
    """What occupies a stream, or why it stands still (see ``IDLE_*``)."""

    COMPUTE = 0
    COMMUNICATION = 1
    OPTIMIZER = 2
    IDLE_COMMUNICATION = 3  # the compute stream waits for a collective
    IDLE_HOST = 4  # the stream waits for the host to launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """One row a span: a segment of launches, a collective, or a wait of the compute stream.

    ``rank_class``, ``stream`` (index into ``list(Stream)``), ``call`` (index into the class'
    program calls), ``kind`` (SpanKind), ``name`` (index into ``names``), ``start``, ``end`` in ns.
    On one stream of one class spans never overlap.
    """

    rank_class: IntColumn
    stream: IntColumn
    call: IntColumn
    kind: IntColumn
    name: IntColumn
    start: IntColumn
    end: IntColumn
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """When each call of a class' program ran: on the host thread and on the compute stream, ns.

    ``compute_start[i] <= compute_end[i] <= compute_start[i+1]``: the stream is serial.
    """

    host_start: IntColumn
    host_end: IntColumn
    compute_start: IntColumn
    compute_end: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounts:
    """How much the engine did: for the ``engine`` part of a result."""

    classes: int
    events: int
    launches: int
    collectives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything the engine says. ``class_of_rank[r]`` is rank r's class."""

    class_of_rank: tuple[int, ...]
    spans: Spans
    calls: tuple[CallTimes, ...]
    counts: EngineCounts
