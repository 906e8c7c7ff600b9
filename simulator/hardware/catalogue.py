"""The catalogue of GPUs: one file each in ``topologies/gpus/``, or beside the scenario."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from simulator.documents.files import read_map
from simulator.documents.mistakes import Mistakes
from simulator.dtypes import SHORT_NAMES, DType
from simulator.hardware.gpu import Gpu
from simulator.hardware.lookup import find_file, names
from simulator.hardware.section import Section


def gpu(name: str, beside: Path | None = None) -> Gpu:
    """The GPU called ``name``, from a file beside the scenario or from the packaged ones.

    Raises UnknownNameError, or UserError where its file is wrong.

    >>> gpu("h100-sxm-80gb").sms
    132
    """
    return read_gpu(find_file("GPU", name, beside))


def gpu_names() -> tuple[str, ...]:
    """The GPUs that come with dryfit."""
    return names("GPU")


def read_gpu(path: Path) -> Gpu:
    """The GPU in a file, which it is named after. Raises UserError."""
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> Gpu:
    """``changed`` (the file's time) is part of the key: an edited file is read again."""
    mistakes = Mistakes()
    with Section(read_map(path, mistakes), mistakes).closing() as file:
        tdp = file.power("tdp")
        found = Gpu(
            name=path.stem,
            family=file.text("family"),
            usable_bytes=file.size("usable"),
            hbm_bytes_per_s=file.rate("hbm"),
            peak_flops=_peaks(file.section("peaks")),
            sms=file.count("sms"),
            tdp_watts=tdp,
            power_watts=file.power("power") if file.has("power") else tdp,
            source=file.text("source"),
            notes=file.text("notes") if file.has("notes") else "",
        )
    mistakes.raise_any()
    return found


def _peaks(section: Section) -> dict[DType, float]:
    with section.closing():
        peaks = {
            dtype: section.flops(key) for key, dtype in SHORT_NAMES.items() if section.has(key)
        }
    if DType.BF16 not in peaks and DType.FP16 not in peaks:
        section.wrong("bf16", "is missing; give the dense peak of bf16, fp16 or both")
    return peaks
