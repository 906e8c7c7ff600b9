"""What is asked of the loss, apart from its name's own rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LossChoice:
    """``name``: of ``LOSSES``; ``chunks``: into how many the sequence is cut, where it is.

    ``upcasts``: the model's own forward casts its logits to fp32. ``sums_apart``: the fused linear
    loss multiplies each chunk's weight gradient apart before it adds it. ``cuts_logits``: the head
    is called once, and its logits are cut. ``compiles``: the loss of each chunk is compiled.
    """

    name: str = "eager"
    chunks: int = 1
    upcasts: bool = False
    sums_apart: bool = False
    cuts_logits: bool = False
    compiles: bool = False


EAGER = LossChoice()
"""Whole logits, op by op."""
