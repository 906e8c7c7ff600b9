"""When transformers builds a causal mask, and of which sort (its masking_utils.py)."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Shape
from simulator.model.ops.plain import additive_mask, boolean_mask


def lend_mask(
    b: GraphBuilder, config: ModelConfig, shape: Shape, *, name: str = "mask", sliding: bool
) -> tuple[int, ...]:
    """The mask that the blocks use; none where sdpa may simply be told that it is causal."""
    if config.attention == "eager":
        return (additive_mask(b, shape.batch, shape.seq, name, sliding=sliding),)
    if is_windowed(config, shape):
        return (boolean_mask(b, shape.batch, shape.seq, name, sliding=True),)
    return ()


def borrow_additive(b: GraphBuilder, shape: Shape, name: str = "mask") -> int:
    """The mask of eager attention."""
    return b.borrow(name, (shape.batch, 1, shape.seq, shape.seq))


def borrow_boolean(b: GraphBuilder, shape: Shape) -> int:
    """The mask of windowed sdpa."""
    return b.borrow("mask.seen", (1, 1, shape.seq, shape.seq), DType.BOOL)


def is_windowed(config: ModelConfig, shape: Shape) -> bool:
    """A window longer than the sequence is no window."""
    return config.window is not None and shape.seq >= config.window
