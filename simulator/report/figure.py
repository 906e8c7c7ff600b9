"""Figures that come out the same byte for byte: house style, no date, no user's matplotlibrc."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_INCHES, DPI = (16.0, 9.0), 100
"""1600 × 900 pixels."""

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.8,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "svg.hashsalt": "dryfit",
}

_NO_DATE: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with the house's settings and none of the user's, without a display."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure() -> Figure:
    """An empty figure of 1600 × 900 pixels on the Agg canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write ``figure`` as its suffix says (png, svg, pdf); equal figures give equal bytes."""
    target = Path(path)
    suffix = target.suffix.lower() or ".png"
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix[1:], metadata=dict(_NO_DATE.get(suffix, {})))
    target.write_bytes(buffer.getvalue())
