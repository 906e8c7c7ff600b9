"""Real PyTorch on the fake device: the only way from the commands into what imports torch.

Torch keeps what it finds when it is first imported, so the shim is loaded before, and the modules
that import torch are imported here, inside functions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from recorder.case import Case
from recorder.fake import library

if TYPE_CHECKING:
    from recorder.saved import Saved
    from recorder.store import Run
    from recorder.tracing.events import Recording


def start() -> None:
    """Load the shim, then torch, and patch what asks for a device. Once a process."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    library.load()
    from recorder.fake import kernels, ranks

    kernels.install()
    ranks.install()


def record(case: Case) -> Recording:
    """Play a case."""
    from recorder.training import record

    return record(case)


def saved(case: Case) -> Saved:
    """What a block of the case keeps for backward."""
    from recorder.saved import saved

    return saved(case)


def whole() -> dict[str, bool]:
    """Trace the small models into the tests' data; whether each is as it was."""
    from recorder.whole import record_all

    return record_all()


def kept_by_compile(case: Case) -> list[int]:
    """Bytes of each storage that a block's compiled forward keeps."""
    from recorder.compiled import kept

    return kept(case)


def as_run(case: Case, recording: Recording) -> Run:
    """A recording as ``tests/data`` keeps it."""
    import torch

    return {
        "config": case.config,
        "torch": torch.__version__,
        "marks": [[mark.name, mark.bytes] for mark in recording.marks],
        "peaks": {
            phase: {"total": peak.total, "by": peak.by, "mod": peak.module, "op": peak.op}
            for phase, peak in recording.peaks().items()
        },
    }
