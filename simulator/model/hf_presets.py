"""Published models run by Hugging Face's modules, as their own config.json states them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator.model.config import ModelConfig
from simulator.model.hf_config import from_hf_config


def _preset(name: str, kind: str, source: str, **keys: Any) -> ModelConfig:
    read = from_hf_config({"model_type": kind, **keys}, name=name)
    return replace(read, source=f"config.json of {source}")


def _dense(
    name: str, kind: str, source: str, sizes: tuple[int, int, int, int, int, int], **keys: Any
) -> ModelConfig:
    """``sizes``: layers, hidden, ffn, heads, kv_heads, vocab."""
    names = (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    return _preset(name, kind, source, **dict(zip(names, sizes, strict=True)), **keys)


def _llama3(size: str, sizes: tuple[int, int, int, int, int, int], head_dim: int) -> ModelConfig:
    source = f"meta-llama/Llama-3.2-{size.upper()}"
    return _dense(
        f"llama-3.2-{size}", "llama", source, sizes, head_dim=head_dim, tie_word_embeddings=True
    )


def _qwen2(size: str, sizes: tuple[int, int, int, int, int, int], **keys: Any) -> ModelConfig:
    source = f"Qwen/Qwen2.5-{size.upper()} (arXiv:2412.15115)"
    return _dense(f"qwen2.5-{size}", "qwen2", source, sizes, **keys)


def _qwen3(size: str, sizes: tuple[int, int, int, int, int, int]) -> ModelConfig:
    source = f"Qwen/Qwen3-{size.upper()} (arXiv:2505.09388)"
    return _dense(f"qwen3-{size}", "qwen3", source, sizes, head_dim=128)


def _mixtral(size: str, sizes: tuple[int, int, int, int, int, int], source: str) -> ModelConfig:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    return _dense(f"mixtral-{size}", "mixtral", f"{source} (arXiv:2401.04088)", sizes, **experts)


def _qwen3_moe(
    size: str, sizes: tuple[int, int, int, int, int, int], expert_ffn: int
) -> ModelConfig:
    return _dense(
        f"qwen3-{size}",
        "qwen3_moe",
        f"Qwen/Qwen3-{size.upper()} (arXiv:2505.09388)",
        sizes,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=expert_ffn,
        norm_topk_prob=True,
    )


def _deepseek_v2(
    name: str, sizes: tuple[int, int, int, int, int, int], expert_ffn: int, **keys: Any
) -> ModelConfig:
    return _dense(
        name.lower(),
        "deepseek_v2",
        f"deepseek-ai/{name} (arXiv:2405.04434)",
        sizes,
        moe_intermediate_size=expert_ffn,
        n_shared_experts=2,
        num_experts_per_tok=6,
        first_k_dense_replace=1,
        **keys,
    )


def _gpt_oss(size: str, layers: int, experts: int) -> ModelConfig:
    return _dense(
        f"gpt-oss-{size}",
        "gpt_oss",
        f"openai/gpt-oss-{size} (arXiv:2508.10925)",
        (layers, 2880, 2880, 64, 8, 201088),
        num_local_experts=experts,
        num_experts_per_tok=4,
    )


def _gemma2(size: str, sizes: tuple[int, int, int, int, int, int], head_dim: int) -> ModelConfig:
    source = f"google/gemma-2-{size} (arXiv:2408.00118)"
    return _dense(f"gemma-2-{size}", "gemma2", source, sizes, head_dim=head_dim)


def _phi3(size: str, sizes: tuple[int, int, int, int, int, int]) -> ModelConfig:
    source = f"microsoft/Phi-3-{size}-4k-instruct (arXiv:2404.14219)"
    return _dense(f"phi-3-{size}", "phi3", source, sizes, sliding_window=2047)


def _gpt2(name: str, layers: int, hidden: int, heads: int) -> ModelConfig:
    return _preset(
        name,
        "gpt2",
        f"openai-community/{name}",
        n_layer=layers,
        n_embd=hidden,
        n_head=heads,
        n_positions=1024,
        vocab_size=50257,
    )


HF_PRESETS: tuple[ModelConfig, ...] = (
    _llama3("1b", (16, 2048, 8192, 32, 8, 128256), 64),
    _llama3("3b", (28, 3072, 8192, 24, 8, 128256), 128),
    _dense(
        "mistral-7b",
        "mistral",
        "mistralai/Mistral-7B-v0.1 (arXiv:2310.06825)",
        (32, 4096, 14336, 32, 8, 32000),
        sliding_window=4096,
    ),
    _qwen2("0.5b", (24, 896, 4864, 14, 2, 151936), tie_word_embeddings=True),
    _qwen2("7b", (28, 3584, 18944, 28, 4, 152064)),
    _qwen2("72b", (80, 8192, 29568, 64, 8, 152064)),
    _qwen3("8b", (36, 4096, 12288, 32, 8, 151936)),
    _qwen3("32b", (64, 5120, 25600, 64, 8, 151936)),
    _mixtral("8x7b", (32, 4096, 14336, 32, 8, 32000), "mistralai/Mixtral-8x7B-v0.1"),
    _mixtral("8x22b", (56, 6144, 16384, 48, 8, 32000), "mistralai/Mixtral-8x22B-v0.1"),
    _dense(
        "qwen1.5-moe-a2.7b",
        "qwen2_moe",
        "Qwen/Qwen1.5-MoE-A2.7B",
        (24, 2048, 5632, 16, 16, 151936),
        num_experts=60,
        num_experts_per_tok=4,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
    ),
    _qwen3_moe("30b-a3b", (48, 2048, 6144, 32, 4, 151936), 768),
    _qwen3_moe("235b-a22b", (94, 4096, 12288, 64, 4, 151936), 1536),
    _deepseek_v2(
        "DeepSeek-V2-Lite",
        (27, 2048, 10944, 16, 16, 102400),
        1408,
        n_routed_experts=64,
        q_lora_rank=None,
    ),
    _deepseek_v2(
        "DeepSeek-V2",
        (60, 5120, 12288, 128, 128, 102400),
        1536,
        n_routed_experts=160,
        q_lora_rank=1536,
        topk_method="group_limited_greedy",
        n_group=8,
        topk_group=3,
    ),
    _dense(
        "deepseek-v3",
        "deepseek_v3",
        "deepseek-ai/DeepSeek-V3 (arXiv:2412.19437)",
        (61, 7168, 18432, 128, 128, 129280),
        moe_intermediate_size=2048,
        n_routed_experts=256,
        num_experts_per_tok=8,
    ),
    _gpt_oss("20b", 24, 32),
    _gpt_oss("120b", 36, 128),
    _gemma2("9b", (42, 3584, 14336, 16, 8, 256000), 256),
    _gemma2("27b", (46, 4608, 36864, 32, 16, 256000), 128),
    _phi3("mini", (32, 3072, 8192, 32, 32, 32064)),
    _phi3("medium", (40, 5120, 17920, 40, 10, 32064)),
    _dense(
        "phi-4",
        "phi3",
        "microsoft/phi-4 (arXiv:2412.08905)",
        (40, 5120, 17920, 40, 10, 100352),
    ),
    _gpt2("gpt2", 12, 768, 12),
    _gpt2("gpt2-xl", 48, 1600, 25),
    _preset(
        "gpt-neox-20b",
        "gpt_neox",
        "EleutherAI/gpt-neox-20b (arXiv:2204.06745)",
        num_hidden_layers=44,
        hidden_size=6144,
        intermediate_size=24576,
        num_attention_heads=64,
        vocab_size=50432,
        hidden_act="gelu_fast",
        rotary_pct=0.25,
    ),
    _preset(
        "mpt-7b",
        "mpt",
        "mosaicml/mpt-7b",
        n_layers=32,
        d_model=4096,
        n_heads=32,
        max_seq_len=2048,
        vocab_size=50432,
    ),
)
"""In the order of their families."""
