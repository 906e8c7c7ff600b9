"""Model families: how a config becomes graphs. One file a family and style, joined here."""

from __future__ import annotations

from collections.abc import Callable

from simulator.dtypes import DType
from simulator.errors import UnknownNameError, UnsupportedError
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.deepseek import hf_deepseek
from simulator.model.families.hf.gemma2 import hf_gemma2
from simulator.model.families.hf.gpt2 import hf_gpt2
from simulator.model.families.hf.gpt_neox import hf_gpt_neox
from simulator.model.families.hf.gpt_oss import hf_gpt_oss
from simulator.model.families.hf.llama import hf_llama
from simulator.model.families.hf.mixtral import hf_mixtral
from simulator.model.families.hf.mpt import hf_mpt
from simulator.model.families.hf.phi3 import hf_phi3
from simulator.model.families.llama import llama
from simulator.model.requires_grad import with_required_gradients

Writer = Callable[[ModelConfig, Shape], Decoder]

WRITERS: dict[tuple[str, str], Writer] = {
    ("llama", "torchtitan"): llama,
    ("llama", "hf"): hf_llama,
    ("mistral", "hf"): hf_llama,
    ("qwen2", "hf"): hf_llama,
    ("qwen3", "hf"): hf_llama,
    ("mixtral", "hf"): hf_mixtral,
    ("qwen2_moe", "hf"): hf_mixtral,
    ("qwen3_moe", "hf"): hf_mixtral,
    ("deepseek_v2", "hf"): hf_deepseek,
    ("deepseek_v3", "hf"): hf_deepseek,
    ("gpt_oss", "hf"): hf_gpt_oss,
    ("gemma2", "hf"): hf_gemma2,
    ("phi3", "hf"): hf_phi3,
    ("gpt2", "hf"): hf_gpt2,
    ("gpt_neox", "hf"): hf_gpt_neox,
    ("mpt", "hf"): hf_mpt,
}
"""(family, style) -> function that writes the graphs of a decoder for one micro-batch shape."""


def _by_style(config: ModelConfig, shape: Shape) -> Decoder:
    writer = WRITERS.get((config.family, config.style))
    if writer is not None:
        if config.style == "torchtitan":
            _refuse_hf_settings(config, shape)
        elif config.attention == "efficient" and config.kv_heads < config.heads:
            raise UnsupportedError(
                "style 'hf' with attention: 'efficient' is not supported with grouped heads, which "
                "that kernel does not take: 'sdpa' picks it where a mask repeats them"
            )
        decoder = writer(config, shape)
        if shape.tuning is None:
            return decoder
        return with_required_gradients(decoder, shape)
    styles = [style for family, style in WRITERS if family == config.family]
    if not styles:
        raise UnknownNameError("model family", config.family, FAMILIES)
    raise UnsupportedError(
        f"family {config.family!r} in style {config.style!r} is not supported; "
        f"its styles: {', '.join(styles)}"
    )


def _refuse_hf_settings(config: ModelConfig, shape: Shape) -> None:
    """torchtitan's modules have no dropout, tied embeddings, window, mask or eager attention."""
    if shape.mask != "none":
        raise UnsupportedError("style 'torchtitan' takes no mask of padding; style 'hf' does")
    for key, known in (
        ("dropout", (0.0,)),
        ("embedding_dropout", (0.0,)),
        ("attention_dropout", (0.0,)),
        ("tied", (False,)),
        ("window", (None,)),
        ("attention", ("sdpa", "efficient")),
    ):
        if getattr(config, key) not in known:
            raise UnsupportedError(
                f"style 'torchtitan' with {key}: {getattr(config, key)!r} is not supported, "
                f"{known[0]!r} is; style 'hf' has it"
            )


FAMILIES: dict[str, Writer] = {family: _by_style for family, _ in WRITERS}
"""Family name -> the writer of its graphs, in the config's style."""


def parameters_of(config: ModelConfig) -> tuple[int, int]:
    """Parameters of a model, and those that one token meets."""
    decoder = FAMILIES[config.family](config, Shape(batch=1, seq=1, dtype=DType.BF16))
    return decoder.parameters, decoder.active_parameters
