"""Both directions of one connection within a node."""

from __future__ import annotations

from typing import NamedTuple

from simulator.hardware.builders.wire import Wire

Way = tuple[str, ...]
"""Vertices of a node, one after the other, named without their node: ``gpu5``, ``pcie2``."""


class Pair(NamedTuple):
    """Both directions between two vertices, named without their node."""

    inner: str
    outer: str
    kind: str
    wire: Wire
