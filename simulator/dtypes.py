"""Element types of tensors, with their width in bytes."""

from __future__ import annotations

from enum import Enum


class DType(Enum):
    """A tensor's element type; the value is the name that PyTorch uses without ``torch.``."""

    FP32 = "float32"
    BF16 = "bfloat16"
    FP16 = "float16"
    FP8 = "float8_e4m3fn"
    INT32 = "int32"
    FP64 = "float64"
    INT64 = "int64"
    UINT64 = "uint64"
    COMPLEX64 = "complex64"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]


_ITEMSIZE = {
    DType.FP32: 4,
    DType.BF16: 2,
    DType.FP16: 2,
    DType.FP8: 1,
    DType.INT32: 4,
    DType.FP64: 8,
    DType.INT64: 8,
    DType.UINT64: 8,
    DType.COMPLEX64: 8,
    DType.UINT8: 1,
    DType.BOOL: 1,
}

SHORT_NAMES = {"fp32": DType.FP32, "bf16": DType.BF16, "fp16": DType.FP16, "fp8": DType.FP8}
"""The names a scenario uses for the floating-point types."""


def wider(one: DType, other: DType) -> DType:
    """What an element-wise op of both computes in: the first where they are of one width."""
    return other if other.itemsize > one.itemsize else one
