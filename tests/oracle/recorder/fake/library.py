"""Loading the shim, which has to come before torch."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


class ShimError(RuntimeError):
    """The shim is missing, or comes too late."""


def load() -> None:
    """Load the shim that ``shim/build.py`` compiled, from ``FAKE_CUDA`` or the environment's root.

    Raises:
        ShimError: no such file, or torch was imported first.
    """
    if "torch" in sys.modules:
        raise ShimError("torch is loaded already: it has asked for its CUDA hooks and kept them")
    path = Path(os.environ.get("FAKE_CUDA", Path(sys.prefix) / "fake_cuda.so"))
    if not path.is_file():
        raise ShimError(f"no shim at {path}: run `make oracle`, or shim/build.py")
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
