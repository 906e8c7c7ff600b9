"""Where everything stands in the picture of a cluster.

From the bottom up: host memory, NVSwitch or the arcs of links between GPUs, GPUs, PCIe switches,
NICs; above the node its leaves, right over their NICs, so that a rail is a straight line; above
them the spines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin

from simulator.hardware.cluster import Cluster, Link, vertex_kind
from simulator.report.topology_scene import Box, Caption, Scene, Wire
from simulator.report.topology_sketch import Sketch, sketch
from simulator.report.vertices import WORDS, counted
from simulator.units import format_rate

LEFT, RIGHT, BOTTOM = 32.0, 155.0, 5.0
"""Where the node begins, where the sheet ends, where it stands."""

SIDE = 10.0
"""Width on either side of the GPUs, for the CPUs."""

ROWS = {
    "host": (0.04, 0.11),
    "nvswitch": (0.23, 0.33),
    "gpu": (0.43, 0.57),
    "pcie": (0.65, 0.74),
    "cpu": (0.62, 0.77),
    "nic": (0.86, 0.95),
}
"""Bottom and top within the node, as shares of its height."""

KINDS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "c2c": "NVLink-C2C",
    "pcie": "PCIe",
    "memory": "memory",
    "nic": "NIC to leaf",
    "fabric": "leaf to spine",
}
"""Words for the kinds of links."""

BUSES = (0.80, 0.83)
"""Heights of the ways to CPUs, from below and from above."""

CAPTIONS = {"memory": 0.17, "nvlink": 0.38, "xgmi": 0.30, "c2c": 0.61, "pcie": 0.70}
"""Heights of the words on the links of a node, by kind."""

SPINES_SHOWN = 8


def scene_of(cluster: Cluster) -> Scene:
    """The picture of a cluster."""
    return _Layout(sketch(cluster)).scene


class _Layout:
    """Places the parts of one sketch."""

    def __init__(self, seen: Sketch) -> None:
        self.seen, self.scene = seen, Scene()
        self.top = 48.0 if seen.spines else 58.0 if seen.up else 72.0
        self.right = 124.0 if seen.units > 1 else RIGHT - 3
        self.boxes: dict[str, Box] = {}
        gpus = len(seen.of("gpu"))
        room = self.right - LEFT - 2 * SIDE
        self.pitch = min(room / gpus, 16.0)
        self.first = LEFT + SIDE + (room - self.pitch * gpus) / 2
        self.end = self.first + self.pitch * gpus
        self._node()
        self._inside()
        self._leaves()
        self._spines()

    def _node(self) -> None:
        """The frame of the node, before those of its mates."""
        for behind in range(min(self.seen.mates - 1, 2), -1, -1):
            x, y = LEFT + 1.1 * behind, BOTTOM + 1.1 * behind
            self._box(
                f"node{behind}",
                x,
                y,
                self.right - LEFT,
                self.top - BOTTOM,
                "",
                "node",
                layer=1.0 - behind / 10,
            )
        if self.seen.mates > 1:
            text = f"node 0, one of {counted(self.seen.mates, 'node')} on these leaves"
            self.scene.labels.append((LEFT + 2, BOTTOM - 2.5, text))

    def _inside(self) -> None:
        seen, middle = self.seen, (self.first, self.end)
        for index, gpu in enumerate(seen.of("gpu")):
            x, width = self.first + (index + 0.1) * self.pitch, self.pitch * 0.8
            memory = f"\n{seen.gpu_memory}" if width > 5 else ""
            self._row(gpu, "gpu", x, width, _text(gpu, width) + memory)
        for vertex in seen.of("nvswitch"):
            shared = f", shared by {seen.sharing} nodes" if seen.sharing > 1 else ""
            self._bar(vertex, "nvswitch", *middle, f"NVSwitch{shared}")
        for vertex in seen.of("host"):
            text = f"{seen.host} host memory".strip()
            self._bar(vertex, "host", LEFT + 2, self.right - 2, text)
        for switch in seen.of("pcie"):
            below = [self.boxes[gpu] for gpu in seen.of("gpu") if seen.linked(gpu, switch)]
            x, end = below[0].x, below[-1].x + below[-1].width
            self._row(switch, "pcie", x, end - x, "PCIe")
        self._nics_and_cpus()
        self._wires()

    def _nics_and_cpus(self) -> None:
        nics, cpus = self.seen.of("nic"), self.seen.of("cpu")
        pitch = (self.end - self.first) / max(1, len(nics))
        width = min(pitch * 0.64, 9.0)
        for index, nic in enumerate(nics):
            self._row(nic, "nic", self.first + (index + 0.5) * pitch - width / 2, width)
        for index, cpu in enumerate(cpus):
            left = 2 * index < len(cpus)
            self._row(cpu, "cpu", LEFT + 2 if left else self.right - SIDE + 1, SIDE - 3)

    def _bar(self, vertex: str, kind: str, x: float, end: float, text: str) -> None:
        self._row(vertex, kind, x + 0.4, end - x - 0.8, text)

    def _wires(self) -> None:
        for link in self.seen.inside:
            ends = vertex_kind(link.source), vertex_kind(link.target)
            one, other = self.boxes[link.source], self.boxes[link.target]
            if ends == ("gpu", "gpu"):
                self._arc(link, one, other)
            elif ends[1] == "cpu":
                self._bus(link, one, other)
            elif ends == ("cpu", "nic"):
                self._bus(link, other, one)
            else:
                low, high = sorted((one, other), key=lambda box: box.y)
                x = self._between(low, high)
                self._wire(link.kind, (x, low.y + low.height), (x, high.y))
        for kind, height in CAPTIONS.items():
            for one_link in [link for link in self.seen.inside if link.kind == kind][:1]:
                self._caption(BOTTOM + height * (self.top - BOTTOM), one_link)

    def _arc(self, link: Link, one: Box, other: Box) -> None:
        """Between two GPUs, below both: the deeper the farther apart they are."""
        left, right = sorted(box.x + box.width / 2 for box in (one, other))
        deepest = (ROWS["gpu"][0] - ROWS["host"][1] - 0.03) * (self.top - BOTTOM)
        span = max(self.end - self.first - self.pitch, 2.2 * deepest)
        deep = deepest * (right - left) / span
        middle, half = (left + right) / 2, (right - left) / 2
        turns = [pi * step / 24 for step in range(25)]
        points = tuple((middle - half * cos(t), one.y - deep * sin(t)) for t in turns)
        wire = Wire(points=points, kind=link.kind, width=1.3, alpha=0.75, layer=2.0)
        self.scene.wires.append(wire)

    def _bus(self, link: Link, box: Box, cpu: Box) -> None:
        """From a PCIe switch or a GPU up, or from a NIC down, along, and down to its CPU."""
        below = box.y < cpu.y + cpu.height
        x, y0 = (box.x + 1.2, box.y + box.height) if below else (box.x + box.width / 2, box.y)
        share = BUSES[0] if below else BUSES[1]
        y = BOTTOM + (self.top - BOTTOM) * share
        middle = cpu.x + cpu.width / 2 + (0 if below else 0.8)
        points = ((x, y0), (x, y), (middle, y), (middle, cpu.y + cpu.height))
        self.scene.wires.append(Wire(points=points, kind=link.kind, layer=2.0, width=1.4))

    def _leaves(self) -> None:
        for link in self.seen.up:
            nic = self.boxes[link.source]
            self._box(
                link.target,
                nic.x,
                self.top + 7,
                nic.width,
                5,
                _text(link.target, nic.width),
                "leaf",
            )
            x = nic.x + nic.width / 2
            self._wire("nic", (x, nic.y + nic.height), (x, self.top + 7))
        if self.seen.up:
            self._caption(self.top + 4, self.seen.up[0])

    def _spines(self) -> None:
        seen, y = self.seen, 69.0
        if seen.uplink is None:
            return
        shown = list(seen.spines[: SPINES_SHOWN - (len(seen.spines) > SPINES_SHOWN)])
        more = len(seen.spines) - len(shown)
        slots = len(shown) + bool(more)
        pitch = (RIGHT - LEFT - SIDE) / slots
        for index in range(slots):
            name = shown[index] if index < len(shown) else "more"
            text = _text(name, 20) if index < len(shown) else f"{more} more"
            x = LEFT + SIDE + index * pitch
            self._box(name, x, y, pitch * 0.8, 4.5, text, "spine")
        self._caption((y + self.top + 12) / 2, seen.uplink)
        self._others()
        ends = [self.boxes[name] for name in [*shown, *(["more"] if more else [])]]
        for link in seen.up:
            self._fan(self.boxes[link.target], ends, 1.0)
        self._fan(self.boxes[f"others{min(seen.units - 2, 2)}"], ends, 2.2)

    def _fan(self, low: Box, ends: Sequence[Box], width: float) -> None:
        start = low.x + low.width / 2, low.y + low.height
        for end in ends:
            points = (start, (end.x + end.width / 2, end.y))
            self.scene.wires.append(Wire(points=points, kind="fabric", width=width, alpha=0.45))

    def _others(self) -> None:
        """All other units in one box."""
        seen, x = self.seen, self.right + 8
        units, nodes = seen.units - 1, seen.nodes - seen.mates
        words = f"{units:,} more unit{'s' if units > 1 else ''}"
        gpus = seen.gpus // seen.nodes * nodes
        text = f"{words}\n{counted(nodes, 'node')}\n{counted(gpus, 'gpu')}"
        for behind in range(min(units - 1, 2), -1, -1):
            self._box(
                f"others{behind}",
                x + 1.1 * behind,
                self.top - 8 + 1.1 * behind,
                RIGHT - x - 3,
                20.0,
                "" if behind else text,
                "node",
                size=11.5,
                layer=4.0 - behind / 10,
            )

    def _between(self, low: Box, high: Box) -> float:
        """Where a vertical wire meets both: at the middle of the narrower."""
        narrow = low if low.width <= high.width else high
        return narrow.x + narrow.width / 2

    def _row(self, vertex: str, kind: str, x: float, width: float, text: str = "") -> None:
        bottom, top = (BOTTOM + share * (self.top - BOTTOM) for share in ROWS[kind])
        self._box(vertex, x, bottom, width, top - bottom, text or _text(vertex, width), kind)

    def _box(
        self,
        name: str,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str,
        fill: str,
        size: float = 9.5,
        layer: float = 4.0,
    ) -> None:
        box = Box(
            x=x, y=y, width=width, height=height, text=text, fill=fill, size=size, layer=layer
        )
        self.boxes[name] = box
        self.scene.boxes.append(box)

    def _wire(self, kind: str, *points: tuple[float, float]) -> None:
        self.scene.wires.append(Wire(points=points, kind=kind))

    def _caption(self, y: float, link: Link) -> None:
        text = f"{KINDS[link.kind]}\n{format_rate(link.bytes_per_s, 3)} each way"
        self.scene.captions.append(Caption(x=5, y=y, text=text, kind=link.kind))


def _text(vertex: str, width: float) -> str:
    """``GPU 5``, or the number alone where there is no room."""
    number = vertex.rpartition("/")[2].removeprefix(kind := vertex_kind(vertex))
    return f"{WORDS[kind][0]} {number}" if width > 5 else number
