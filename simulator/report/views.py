"""What a Result draws itself with: the plots of this room, imported when first asked for."""

from __future__ import annotations

from typing import Any

from simulator.trace.trace import Trace


class Plots:
    """The views that ``simulate`` hands to its result."""

    def plot_memory(self, trace: Trace, *, rank: int | None = None) -> Any:
        """A figure of the memory of ``rank`` over time (None: the peak rank)."""
        from simulator.report.memory_plot import plot_memory

        return plot_memory(trace, rank=rank)
