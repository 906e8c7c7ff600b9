from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import UnsupportedError, UserError
from simulator.model.hf_config import from_hf_config
from simulator.model.presets import PRESETS

QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
    "head_dim": 128,
    "hidden_act": "silu",
    "sliding_window": None,
    "use_sliding_window": False,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
}


def test_a_config_is_the_preset_of_its_model() -> None:
    read = from_hf_config(QWEN3, name="qwen3-8b")
    preset = PRESETS["qwen3-8b"]
    for field in preset.__dataclass_fields__:
        if field != "source":
            assert getattr(read, field) == getattr(preset, field), field


def test_every_missing_key_is_named() -> None:
    with pytest.raises(UserError, match="lacks n_embd, n_head, n_layer, vocab_size, n_positions"):
        from_hf_config({"model_type": "gpt2"})
    with pytest.raises(UserError, match="'gemma2': it lacks hidden_size, num_attention_heads"):
        from_hf_config({"model_type": "gemma2"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "qwen4"}, "'qwen4' is not supported; known: llama, mistral"),
        ({"hidden_act": "gelu_fats"}, "hidden_act: 'gelu_fats' .*; did you mean 'gelu_fast'"),
        ({"use_sliding_window": True}, "use_sliding_window: True is not supported"),
        ({"_attn_implementation": "flex_attention"}, "'sdpa' or 'eager' is"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "architectures: 'Qwen3ForSeq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config: weights"),
        ({"rope_scaling": {"type": "lineer"}}, "rope_type 'lineer' .*; did you mean 'linear'"),
        ({"rope_parameters": {"rope_type": "llama4"}}, "did you mean 'llama3'"),
    ],
)
def test_what_is_not_supported_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        from_hf_config(QWEN3 | changes)


@pytest.mark.parametrize("wrong", ["4096", 0, -1, 2.5, True])
def test_sizes_are_positive_integers(wrong: object) -> None:
    with pytest.raises(UserError, match="hidden_size"):
        from_hf_config(QWEN3 | {"hidden_size": wrong})


def test_defaults_are_the_classes_own() -> None:
    gpt2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    read = from_hf_config({"model_type": "gpt2", **gpt2})
    assert (read.dropout, read.embedding_dropout, read.attention_dropout) == (0.1, 0.1, 0.1)
    assert (read.ffn, read.tied, read.activation) == (3072, True, "gelu_new")
    neox = {
        "model_type": "gpt_neox",
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 96,
    }
    assert from_hf_config(neox).rotary_fraction == 0.25
    assert from_hf_config(neox | {"rotary_pct": 0.5}).rotary_fraction == 0.5
    assert from_hf_config(neox).activation == "gelu"
    assert from_hf_config(neox | {"hidden_act": "gelu_fast"}).activation == "gelu_fast"
    assert PRESETS["gpt-neox-20b"].activation == "gelu_fast"
    newer = {"rope_parameters": {"partial_rotary_factor": 0.75}}
    assert from_hf_config(neox | newer).rotary_fraction == 0.75


def test_a_class_of_another_model_is_no_class_of_this_one() -> None:
    with pytest.raises(UserError, match="'MistralForCausalLM' is none of model_type 'qwen3'"):
        from_hf_config(QWEN3 | {"architectures": ["MistralForCausalLM"]})


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"hidden_size": -1, "vocab_size": "many", "hidden_act": "?", "num_hidden_layers": None}
    with pytest.raises(UserError) as caught:
        from_hf_config(QWEN3 | wrong)
    for key in ("num_hidden_layers", "hidden_size: -1", "vocab_size: 'many'", "hidden_act: '?'"):
        assert key in str(caught.value)
