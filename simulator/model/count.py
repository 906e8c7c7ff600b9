"""Closed forms of a decoder's work, as the field counts it for MFU."""

from __future__ import annotations

from simulator.model.config import ModelConfig


def flops_per_token(config: ModelConfig, parameters: int, seq: int) -> int:
    """Model FLOPs a token of one training step, as torchtitan counts them.

    6 per parameter, the embedding's excluded (a lookup), + 12 · layers · hidden · seq for the two
    products of attention, forward and backward, not halved for the causal mask
    (torchtitan ``models/utils.py: get_dense_model_nparams_and_flops``; PaLM, arXiv:2204.02311,
    appendix B).
    """
    matmul = parameters - config.vocab * config.hidden
    width = config.heads * config.head_dim
    return 6 * matmul + 12 * config.layers * width * seq
