"""The command line: one file a verb, joined in ``app.VERBS``. Nothing but click on the way in."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``dryfit`` and exit: 0 yes, 1 no, 2 your mistake, 3 ours, 130 interrupted."""
    gc.set_threshold(100_000)  # a run makes many objects that live until its end: a tenth faster
    try:
        from simulator.cli.guard import run

        code = run(arguments)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
