"""When transformers builds a causal mask, and of which sort (its masking_utils.py)."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Shape
from simulator.model.ops.plain import (
    additive_mask,
    ask_whether_all,
    boolean_mask,
    padding_mask,
)


def lend_mask(
    b: GraphBuilder, config: ModelConfig, shape: Shape, *, name: str = "mask", sliding: bool
) -> tuple[int, ...]:
    """The mask that the blocks use; none where sdpa may simply be told that it is causal."""
    batch, seq = shape.batch, shape.seq
    with b.frame() as frame:
        padding = None
        if shape.mask != "none":
            padding = padding_mask(b, batch, seq, f"{name}.padding")
            frame.bind(padding)
        if config.attention == "eager":
            return (additive_mask(b, batch, seq, name, sliding=sliding, padding=padding),)
        if padding is not None and not is_windowed(config, shape):
            _look_for_padding(b, padding, f"{name}.padding", shape)
        if is_masked(config, shape):
            return (boolean_mask(b, batch, seq, name, sliding=sliding, padding=padding),)
        return ()


def _look_for_padding(b: GraphBuilder, padding: int, name: str, shape: Shape) -> None:
    """Without any, sdpa needs no mask; if there is some, all is asked a second time.

    Source: ``_ignore_causal_mask_sdpa`` of masking_utils.py.
    """
    ask_whether_all(b, padding, f"{name}.first")
    if shape.mask == "padded":
        ask_whether_all(b, padding, f"{name}.second")


def borrow_additive(b: GraphBuilder, shape: Shape, name: str | None = None) -> int:
    """The mask of eager attention: of that name, or the only one that the block is passed."""
    if name is None:
        (name,) = (each for each in ("mask", "mask.sliding") if b.lent(each))
    return b.borrow(name, (shape.batch, 1, shape.seq, shape.seq))


def borrow_boolean(b: GraphBuilder, shape: Shape) -> int:
    """The mask of sdpa; each sequence has its own where there may be padding."""
    first = 1 if shape.mask == "none" else shape.batch
    return b.borrow("mask.seen", (first, 1, shape.seq, shape.seq), DType.BOOL)


def is_masked(config: ModelConfig, shape: Shape) -> bool:
    """Whether sdpa is given a mask: there is a window, or padding in the batch."""
    return is_windowed(config, shape) or shape.mask == "padded"


def is_windowed(config: ModelConfig, shape: Shape) -> bool:
    """A window longer than the sequence is no window; flash-attn's own kernel needs no mask for it.

    Source: transformers integrations/flash_attention.py, ``sliding_window``.
    """
    if config.attention == "flash_attention_2" or config.window is None:
        return False
    return shape.seq >= config.window
