"""Flat buffers and copies, of which frameworks are made."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.program.instructions import Category, Tensor


def flat(name: str, numel: int, dtype: DType, category: Category, module: str) -> Tensor:
    """A one-dimensional buffer."""
    return Tensor(name=name, shape=(numel,), dtype=dtype, category=category, module=module)


def copy(name: str, read: int, written: int) -> Elementwise:
    """A copy or cast: bytes read and written."""
    return Elementwise(name=name, kind="copy", read=read, written=written)
