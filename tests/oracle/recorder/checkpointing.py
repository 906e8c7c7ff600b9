"""Activation checkpointing of blocks, as torchtitan applies it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from recorder.tracing.tracer import Tracer

aten = torch.ops.aten
RECOMPUTED = "recompute_act"
KEPT = frozenset(
    {
        aten.mm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten.max.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }
)
"""What ``selective_op`` keeps, but for every second matrix product."""


def apply(blocks: nn.ModuleList, mode: str) -> None:
    """Wrap the blocks that ``mode`` checkpoints (see ``Case.ac``).

    Raises:
        ValueError: no such mode.
    """
    if mode == "none":
        return
    early_stop = not mode.endswith("_noearly")
    options: dict[str, Any] = {"preserve_rng_state": False, "early_stop": early_stop}
    kind, _, which = mode.removesuffix("_noearly").partition("_")
    every = 1
    if which == "op":
        options["context_fn"] = selective
    elif which.isdigit():
        every = int(which)
    elif kind != "full":
        raise ValueError(f"no checkpointing mode {mode!r}")
    for index in range(0, len(blocks), every):
        blocks[index] = checkpoint_wrapper(blocks[index], **options)


def selective() -> Any:
    """Contexts that keep what is dear to compute again."""
    return create_selective_checkpoint_contexts(partial(_policy, Counter()))


def _policy(products: Counter[bool], context: Any, func: Any, *_: Any, **__: Any) -> Any:
    keep = func in KEPT
    if func == aten.mm.default:
        products[context.is_recompute] += 1
        keep = products[context.is_recompute] % 2 == 1
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def label_recomputed(blocks: nn.ModuleList, tracer: Tracer) -> None:
    """Call what a checkpointed block computes again ``recompute_act``."""
    for block in blocks:
        inner = getattr(block, "_checkpoint_wrapped_module", block)
        if inner is not block:
            inner.register_forward_pre_hook(partial(_begin, tracer))
            inner.register_forward_hook(partial(_end, tracer), always_call=True)


def _begin(tracer: Tracer, *_: Any) -> None:
    if tracer.phase.startswith("bwd"):
        tracer.assumed = RECOMPUTED


def _end(tracer: Tracer, *_: Any) -> None:
    if tracer.assumed == RECOMPUTED:
        tracer.assumed = None
