"""The cases by name; ``MERGED`` are those whose recordings tests read."""

from __future__ import annotations

from recorder.case import Case
from recorder.cases.autocast import HUGGING_FACE_AUTOCAST
from recorder.cases.fine_tuning import FINE_TUNING
from recorder.cases.float8 import FLOAT8
from recorder.cases.frameworks import FRAMEWORKS
from recorder.cases.hostile import HOSTILE
from recorder.cases.hugging_face import EFFICIENT, HOSTILE_HUGGING_FACE, HUGGING_FACE, PADDED
from recorder.cases.losses import LOSSES
from recorder.cases.optimizers import OPTIMIZERS
from recorder.cases.others import DDP, OTHERS
from recorder.cases.real import REAL
from recorder.cases.small import SMALL

MERGED: dict[str, Case] = {
    **REAL,
    **SMALL,
    **HOSTILE,
    **OPTIMIZERS,
    **HUGGING_FACE,
    **HOSTILE_HUGGING_FACE,
    **HUGGING_FACE_AUTOCAST,
    **FINE_TUNING,
    **DDP,
    **FLOAT8,
    **FRAMEWORKS,
    **LOSSES,
    **PADDED,
    **EFFICIENT,
}
CASES: dict[str, Case] = {**MERGED, **OTHERS}
