"""Llama with torchtune's modules: torchtitan's but for the norm, the positions and the logits.

Norms compute in fp32 and cast back, before the weight until 0.4 (``rms_norm: narrow``) and after it
since (modules/rms_norm.py); keys and values are copied to all heads (modules/attention.py); the
rotary cache is gathered by the packed batch's positions and kept with the product
(models/llama3_1/_position_embeddings.py); whole logits are cast by the model itself (``unembed``,
modules/transformer.py); a head may be the embedding (``TiedLinear``). Packed batches run
flex_attention, whose node keeps what flash attention's does. Source: torchtune 0.4.0 and 0.6.1.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.llama import llama


def torchtune_llama(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one Llama for one micro-batch."""
    norm = "narrow" if config.rms_norm == "narrow" else "composite"
    own = replace(config, rms_norm=norm, kv_expand=True)
    return llama(own, replace(shape, loss=replace(shape.loss, upcasts=True)))
