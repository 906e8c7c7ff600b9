"""How large a job may be: beyond these sizes no figure would mean anything, or fit in 64 bits."""

from __future__ import annotations

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.model.config import ModelConfig
from simulator.plan.plan import Training

MOST_TOKENS = 2**31
"""Tokens of a rank and micro-step."""

MOST_PARAMETERS = 10**14

MOST_ELEMENTS = 2**50
"""Elements that a rank's micro-step makes: of activations, of logits, of attention scores."""

MOST_WORK = 10**22
"""Floating-point operations of a rank's step: months of any GPU."""


def check_size(model: ModelConfig, training: Training, tree: Map, mistakes: Mistakes) -> None:
    """Note a model or a step that is too large to be simulated."""
    parameters = parameters_about(model)
    if parameters > MOST_PARAMETERS:
        text = f"is too large: about {parameters:.1e} parameters, where {MOST_PARAMETERS:.0e} is"
        mistakes.at(tree, ("model",), f"{text} the limit")
        return
    where = ("training", "micro_batch")
    tokens = training.micro_batch * training.seq_len
    product = f"micro_batch × seq_len = {training.micro_batch:,} × {training.seq_len:,}"
    if tokens > MOST_TOKENS:
        text = f"is too large: {product} tokens pass the limit of {MOST_TOKENS:,} a rank"
        mistakes.at(tree, where, text)
    elif _elements(model, training) > MOST_ELEMENTS:
        text = f"is too large: {product} tokens of this model make more than {MOST_ELEMENTS:.0e}"
        mistakes.at(tree, where, f"{text} numbers")
    elif _work(model, training, parameters) > MOST_WORK:
        text = f"is too large: {product} tokens, {training.grad_accum:,} times, would take months"
        mistakes.at(tree, where, text)


def parameters_about(model: ModelConfig) -> int:
    """Parameters to within biases and norms."""
    width, key_width = model.heads * model.head_dim, model.kv_heads * model.head_dim
    mlp = max(model.ffn, model.experts * model.expert_width)
    block = model.hidden * (2 * width + 2 * key_width + 3 * mlp)
    return model.layers * block + 2 * model.vocab * model.hidden


def _elements(model: ModelConfig, training: Training) -> int:
    """Activations of every block, eager attention's scores, and the logits."""
    mlp = max(model.ffn, model.experts_per_token * model.expert_width)
    width = model.hidden + mlp + model.heads * model.head_dim
    if training.attention == "eager":
        width += model.heads * training.seq_len
    return training.micro_batch * training.seq_len * (model.layers * width + model.vocab)


def _work(model: ModelConfig, training: Training, parameters: int) -> int:
    attention = 12 * model.layers * model.heads * model.head_dim * training.seq_len
    tokens = training.micro_batch * training.seq_len * training.grad_accum
    return tokens * (8 * parameters + attention)
