"""What the CUDA dispatcher would choose.

A CPU build has no CUDA kernels. Where an operator has one and also a decomposition, dispatch would
fall to the decomposition, with other saved tensors than on a GPU; a kernel that is registered and
never called (tensors are fake) restores the choice. ``F.scaled_dot_product_attention`` and
``F.dropout`` choose in C++ by asking the device, so the choice is made here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.cuda.amp.common
import torch.nn.functional as functional
from torch import Tensor

aten = torch.ops.aten

ONLY_ON_CUDA = (
    "_fused_rms_norm",
    "silu_backward",
    "mish_backward",
    "native_channel_shuffle",
)
_LIBRARY = torch.library.Library("aten", "IMPL")
_COMPOSITE_ATTENTION = functional.scaled_dot_product_attention
BACKENDS = ("flash", "efficient", "math")
_HALF = (torch.bfloat16, torch.float16)
FLASH_ALIGNMENT = 8
"""The flash kernels take head sizes that are multiples of this; others are padded first."""

BIAS_ALIGNMENT = 8
"""The efficient kernel takes biases whose rows begin at multiples of this; others are padded."""


class Backend:
    """Which attention kernels may be chosen: ``flash``, ``efficient`` or ``math``."""

    chosen = "flash"


def choose(attention: str) -> None:
    """Set the backend; ``eager`` is the model's own affair."""
    Backend.chosen = attention if attention in BACKENDS else "flash"


def install() -> None:
    """Register the kernels and let this module choose attention and dropout."""
    for name in ONLY_ON_CUDA:
        _LIBRARY.impl(name, _never_called, "CUDA")
    _LIBRARY.impl("_fused_sgd_", lambda *_, **__: None, "Meta")
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    functional.scaled_dot_product_attention = attention
    functional.dropout = dropout
    functional.one_hot = one_hot


def _never_called(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a fake tensor reached a real kernel")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``native_dropout``, which keeps a mask of one byte an element."""
    if not training or p == 0:
        return input
    return aten.native_dropout(input, p, True)[0]


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Ones scattered into zeros; for fake tensors torch compares with a range instead."""
    zeros = tensor.new_zeros((*tensor.shape, num_classes))
    return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Flash for half precision, one head size and no mask, else efficient, or math."""
    if torch.is_autocast_enabled("cuda") and Backend.chosen != "math":
        dtype = torch.get_autocast_dtype("cuda")
        # the compiler evaluates the casts of a call from its last argument to its first
        value, key, query = (tensor.to(dtype) for tensor in (value, key, query))
    grouped = enable_gqa and key.shape[1] != query.shape[1]
    same = query.shape[-1] == value.shape[-1]
    half = attn_mask is None and query.dtype in _HALF and same
    if Backend.chosen == "flash" and half:
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if Backend.chosen == "math" or grouped:
        return _COMPOSITE_ATTENTION(
            *(query, key, value, attn_mask, dropout_p, is_causal),
            scale=scale,
            enable_gqa=enable_gqa,
        )
    bias = None if attn_mask is None else _bias(attn_mask, query, key)
    efficient = aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]


def _flash(
    query: Tensor, key: Tensor, value: Tensor, p: float, causal: bool, scale: float | None
) -> Tensor:
    size = query.shape[-1]
    missing = -size % FLASH_ALIGNMENT
    if missing:
        query, key, value = (functional.pad(t, (0, missing)) for t in (query, key, value))
    flash = aten._scaled_dot_product_flash_attention
    output = flash(query, key, value, p, causal, False, scale=scale or size**-0.5)[0]
    return output[..., :size] if missing else output


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """What ``convert_boolean_attn_mask_`` and ``preprocess_mask`` make of a mask.

    Source: ATen/native/transformers/attention.cpp.
    """
    if mask.dtype == torch.bool:
        scalar = partial(torch.scalar_tensor, dtype=query.dtype, device=mask.device)
        mask = torch.where(mask, 0.0, scalar(float("-inf")))
    if any(stride % BIAS_ALIGNMENT for stride in mask.stride()[:-1]):
        width = mask.shape[-1]
        missing = BIAS_ALIGNMENT - width % BIAS_ALIGNMENT
        mask = functional.pad(mask, (0, missing))[..., :width]
    return mask.expand(*query.shape[:3], key.shape[2])
