"""One colour for each memory category and each kind of time, the same in every picture.

After Paul Tol's colour-blind safe schemes (*muted*, *vibrant*); what belongs together is of one
hue: blues and teal hold parameters, reds gradients, yellows the optimizer, greens activations.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.trace.timeline import SpanKind

CATEGORY_COLOURS: Mapping[str, str] = {
    "parameters": "#332288",
    "buffers": "#777777",
    "workspaces": "#555555",
    "optimizer": "#999933",
    "gradients": "#882255",
    "inputs": "#BBBBBB",
    "activations": "#117733",
    "recomputed": "#88BB77",
    "unsharded_parameters": "#88CCEE",
    "all_gather": "#44AA99",
    "unsharded_gradients": "#CC6677",
    "reduce_scatter": "#AA4499",
    "optimizer_temporaries": "#DDCC77",
    "temporaries": "#EE7733",
    "slack": "#E5E5E5",
}
"""Memory categories from the bottom of a stack (what stays) to its top (what passes)."""

UNKNOWN_CATEGORY = "#000000"

PHASE_COLOURS: Mapping[str, str] = {
    "init": "#DDDDDD",
    "forward": "#BBCCEE",
    "backward": "#FFCCCC",
    "optimizer": "#EEEEBB",
}
"""Pale: they lie behind the data."""

SPAN_COLOURS: Mapping[SpanKind, str] = {
    SpanKind.COMPUTE: "#4477AA",
    SpanKind.COMMUNICATION: "#44AA99",
    SpanKind.OPTIMIZER: "#999933",
    SpanKind.IDLE_COMMUNICATION: "#CC3311",
    SpanKind.IDLE_HOST: "#EE7733",
}

SPAN_WORDS: Mapping[SpanKind, str] = {
    SpanKind.COMPUTE: "compute",
    SpanKind.COMMUNICATION: "communication",
    SpanKind.OPTIMIZER: "optimizer",
    SpanKind.IDLE_COMMUNICATION: "exposed communication (compute waits)",
    SpanKind.IDLE_HOST: "waits for the host",
}

INK, QUIET, YES, NO = "#222222", "#666666", "#117733", "#CC3311"
"""Text, secondary text, and the verdict's two colours."""


def stack_order(categories: tuple[str, ...]) -> list[int]:
    """Indices of ``categories`` from the bottom of a stack to its top."""
    rank = {name: i for i, name in enumerate(CATEGORY_COLOURS)}
    return sorted(range(len(categories)), key=lambda i: rank.get(categories[i], len(rank)))
