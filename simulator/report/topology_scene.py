"""The pieces of a cluster's picture, on a sheet of 160 × 90, and their colours."""

from __future__ import annotations

from dataclasses import dataclass, field

KIND_COLOURS = {
    "nvlink": "#117733",
    "xgmi": "#CC6677",
    "c2c": "#44AA99",
    "pcie": "#999933",
    "memory": "#AA4499",
    "nic": "#4477AA",
    "fabric": "#332288",
}
"""Of wires, by the kind of link; the hues of the other pictures."""

FILLS = {
    "gpu": ("#DDEEDD", "#117733"),
    "nvswitch": ("#CCE5D2", "#117733"),
    "pcie": ("#F3F1D8", "#999933"),
    "cpu": ("#F0E0EE", "#AA4499"),
    "host": ("#F0E0EE", "#AA4499"),
    "nic": ("#DCE6F2", "#4477AA"),
    "leaf": ("#DCE6F2", "#4477AA"),
    "spine": ("#DEDBF0", "#332288"),
    "node": ("#FAFAFA", "#BBBBBB"),
}
"""Face and edge of boxes, by kind of vertex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A vertex, or a frame around several (a lower ``layer``)."""

    x: float
    y: float
    width: float
    height: float
    text: str
    fill: str
    size: float = 9.5
    layer: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A link, both directions, through ``points``."""

    points: tuple[tuple[float, float], ...]
    kind: str
    width: float = 1.8
    alpha: float = 1.0
    layer: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """What the wires at this height are, with a sample of their colour."""

    x: float
    y: float
    text: str
    kind: str


@dataclass(slots=True)
class Scene:
    """All that is drawn."""

    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    labels: list[tuple[float, float, str]] = field(default_factory=list)
