"""Closed forms of a decoder's work, as the field counts it for MFU."""

from __future__ import annotations

from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder


def flops_per_token(config: ModelConfig, decoder: Decoder, seq: int) -> int:
    """Model FLOPs a token of one training step, as torchtitan counts them.

    6 per parameter that a token meets (of the routed experts, those that it is sent to), the
    embedding's excluded (a lookup), + 12 · layers · hidden · seq for the two
    products of attention, forward and backward, not halved for the causal mask; where values have
    their own width, 6 · layers · heads · (head_dim + v_head_dim) · seq
    (torchtitan ``models/utils.py: get_dense_model_nparams_and_flops`` and ``get_moe_...``; PaLM,
    arXiv:2204.02311, appendix B).
    """
    matmul = decoder.active_parameters - config.vocab * config.hidden
    width = config.heads * (config.head_dim + config.v_width)
    return 6 * matmul + 6 * config.layers * width * seq


def spared_flops_per_token(config: ModelConfig, decoder: Decoder, seq: int) -> int:
    """Of those, what is not computed where weights are frozen: nothing where all are trained.

    2 a frozen matmul parameter, its gradient; below the first trained weight no gradient of
    activations either: 2 more a parameter and 8 · hidden · seq a layer of attention.
    """
    attention = 4 * config.heads * (config.head_dim + config.v_width) * seq
    spared = 0
    for graph in (*decoder.blocks, decoder.head):
        spared += 2 * sum(weight.active for weight in graph.weights if not weight.trainable)
        if not graph.has_backward:
            spared += 2 * graph.active_parameters + attention * (graph is not decoder.head)
    return spared
