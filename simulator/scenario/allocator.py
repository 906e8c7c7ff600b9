"""Which settings PyTorch's caching allocator has: named, or as the launcher leaves them."""

from __future__ import annotations

from simulator.errors import UserError
from simulator.memory.caching_allocator import Settings
from simulator.plan.versions import EXPANDABLE, LAUNCHERS, Rule, Software
from simulator.scenario.fields import Kind, kind_of
from simulator.scenario.scenario import AllocatorChoice

AUTO, OFF = "auto", "off"
NAMED = {"default": "", "expandable": EXPANDABLE}
"""Settings by a short name."""


def check_allocator(value: object) -> str:
    """``auto``, ``off``, a short name, or what PYTORCH_CUDA_ALLOC_CONF may hold. ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"expected auto, off or PYTORCH_CUDA_ALLOC_CONF, found {kind_of(value)}")
    if value in (AUTO, OFF):
        return value
    try:
        Settings.parse(NAMED.get(value, value))
    except UserError as error:
        raise ValueError(str(error).removeprefix("allocator: ")) from None
    return value


ALLOCATOR = Kind(
    check_allocator,
    schema={
        "anyOf": [
            {"enum": [AUTO, OFF, *NAMED]},
            {"type": "string", "pattern": r"^$|^[a-z_0-9]+:.+$"},
        ]
    },
)


def resolve_allocator(
    written: str | None, launcher: str | None, software: Software
) -> AllocatorChoice | None:
    """The settings of the run, and others that it may have; None: no allocator (``off``)."""
    if written == OFF:
        return None
    if written not in (None, AUTO):
        return AllocatorChoice(settings=NAMED.get(written, written))
    if launcher is None or LAUNCHERS[launcher] is None:
        return AllocatorChoice(settings="", others=(EXPANDABLE,))
    left = LAUNCHERS[launcher]
    return AllocatorChoice(settings=str(left.value(software)) if isinstance(left, Rule) else "")
