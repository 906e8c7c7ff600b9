"""Activation checkpointing of blocks, as torchtitan applies it, or of parts of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from recorder.models import Built
from recorder.tracing.tracer import Tracer

aten = torch.ops.aten
RECOMPUTED = "recompute_act"
REENTRANT = "_reentrant"
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
    if mode == "none" or mode.endswith(REENTRANT):
        return
    offload, mode = mode.endswith("_offload"), mode.removesuffix("_offload")
    early_stop = not mode.endswith("_noearly")
    options: dict[str, Any] = {"preserve_rng_state": False, "early_stop": early_stop}
    kind, _, which = mode.removesuffix("_noearly").partition("_")
    every = 1
    if kind == "part":
        for block in blocks:
            _checkpoint_parts(block, which.split("+"), options)
        return
    if kind == "save":
        options["context_fn"] = partial(selective, _rules(which))
    elif which == "op":
        options["context_fn"] = partial(selective, {**dict.fromkeys(KEPT, 1), aten.mm.default: 2})
    elif which.isdigit():
        every = int(which)
    elif kind != "full":
        raise ValueError(f"no checkpointing mode {mode!r}")
    for index in range(0, len(blocks), every):
        blocks[index] = checkpoint_wrapper(blocks[index], **options)
        if offload:
            blocks[index] = offload_wrapper(blocks[index])


Rules = dict[Any, int]
"""Operators whose results are kept, and of how many calls one."""


def _rules(which: str) -> Rules:
    """``mm,silu/3``; an empty word keeps nothing."""
    rules: Rules = {}
    for word in filter(None, which.split(",")):
        name, _, every = word.partition("/")
        rules[getattr(aten, name).default] = int(every or 1)
    return rules


def selective(rules: Rules) -> Any:
    """Contexts that keep what is dear to compute again."""
    return create_selective_checkpoint_contexts(partial(_policy, rules, Counter()))


def _policy(rules: Rules, calls: Counter[Any], context: Any, func: Any, *_: Any, **__: Any) -> Any:
    keep = False
    if func in rules:
        calls[func, context.is_recompute] += 1
        keep = (calls[func, context.is_recompute] - 1) % rules[func] == 0
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def _checkpoint_parts(block: nn.Module, names: list[str], options: dict[str, Any]) -> None:
    around = partial(checkpoint, use_reentrant=False, **options)
    for name in names:
        if name == "core_attn":
            _checkpoint_core(block, around)
            continue
        for module in _modules(block, name):
            module.forward = partial(around, module.forward)


def _checkpoint_core(block: nn.Module, around: Any) -> None:
    """transformers' blocks look the function up by name."""
    if hasattr(getattr(block, "attention", None), "around_core"):
        block.attention.around_core = around
        return
    from recorder.models.hugging_face import attend_by

    attend_by(around)


def _modules(block: nn.Module, name: str) -> Iterator[nn.Module]:
    for path, module in block.named_modules():
        is_norm = type(module).__name__.lower().endswith("norm")
        if is_norm if name == "layernorm" else path in ("feed_forward", "mlp"):
            yield module


def apply_around(built: Built, mode: str) -> None:
    """Re-entrant checkpoints stand around what the framework wrapped.

    That is how transformers' models called their layers up to 4.52; the embedding's output is made
    to require a gradient (``enable_input_require_grads``).
    """
    if not mode.endswith(REENTRANT):
        return
    built.embedding.register_forward_hook(lambda *seen: seen[-1].requires_grad_(True))
    every = mode.removesuffix(REENTRANT).rpartition("_")[-1]
    for block in built.blocks[:: int(every) if every.isdigit() else 1]:
        block.forward = partial(_reentrant, block.forward)


def _reentrant(forward: Any, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(
        partial(forward, **kwargs), *args, use_reentrant=True, preserve_rng_state=False
    )


def label_recomputed(blocks: nn.ModuleList, tracer: Tracer) -> None:
    """Call what a checkpointed block computes again ``recompute_act``."""
    for block in blocks:
        inner = getattr(block, "_checkpoint_wrapped_module", block)
        if inner is not block or isinstance(getattr(block, "forward", None), partial):
            inner.register_forward_pre_hook(partial(_begin, tracer))
            inner.register_forward_hook(partial(_end, tracer), always_call=True)


def _begin(tracer: Tracer, *_: Any) -> None:
    if tracer.phase.startswith("bwd"):
        tracer.assumed = RECOMPUTED


def _end(tracer: Tracer, *_: Any) -> None:
    if tracer.assumed == RECOMPUTED:
        tracer.assumed = None
