"""What a backward pass has in flight: gradients, and checkpointed calls that run again."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.lowering.recompute import Region


@dataclass(slots=True)
class Gradient:
    """A gradient storage in flight and how many hold it."""

    slot: int
    holders: int = 1


@dataclass(slots=True)
class Call:
    """One checkpointed call in backward: what recompute made, and who still needs it.

    ``keepers``: how many nodes have yet to unpack each value that the call makes; ``packed``: how
    many tensors they have yet to unpack in all.
    """

    region: Region
    keepers: dict[int, int] = field(default_factory=dict)
    packed: int = 0
    slots: dict[int, int] = field(default_factory=dict)
    recomputed: bool = False
