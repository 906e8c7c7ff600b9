"""The words for what clusters are made of."""

from __future__ import annotations

WORDS = {
    "node": ("node", "nodes"),
    "gpu": ("GPU", "GPUs"),
    "nic": ("NIC", "NICs"),
    "nvswitch": ("NVSwitch", "NVSwitches"),
    "pcie": ("PCIe switch", "PCIe switches"),
    "cpu": ("CPU", "CPUs"),
    "host": ("host memory", "host memories"),
    "leaf": ("leaf", "leaves"),
    "spine": ("spine", "spines"),
}
"""One and many, by kind of vertex."""


def counted(number: int, kind: str) -> str:
    """``number`` of a kind of vertex in words.

    >>> counted(1, "leaf"), counted(2048, "leaf")
    ('1 leaf', '2,048 leaves')
    """
    return f"{number:,} {WORDS[kind][number != 1]}"
