"""The measured constants of this room: JSON files that name the source of every number.

Each entry says how many measured points stand behind it; ``prior`` marks those from fewer than
twenty points or a single source. None is fitted to a single case.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data"


@cache
def constants(name: str) -> Any:
    """The parsed ``data/NAME.json``, read once, at first use (about 0.2 ms).

    >>> constants("kernels")["gemm"]["H100"]["16bit"]["e"]
    0.746
    """
    return json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8"))
