from __future__ import annotations

import pytest

from simulator.errors import ScenarioError
from tests.scenario.conftest import TINY, Load


def test_shape_of_a_mixture_can_be_overridden(load_text: Load) -> None:
    changes = ["model.preset=mixtral-8x7b", "model.experts=4", "model.experts_per_token=1"]
    model = load_text(TINY, [*changes, "model.expert_ffn=512"]).model
    assert (model.experts, model.experts_per_token, model.expert_width) == (4, 1, 512)
    assert model.experts_implementation == "grouped_mm"


def test_a_dense_model_has_no_experts(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="llama-2-7b has no routed experts"):
        load_text(TINY, ["model.experts=4"])


def test_a_token_is_sent_to_no_more_experts_than_there_are(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="9 experts a token, and a layer has 8"):
        load_text(TINY, ["model.preset=mixtral-8x7b", "model.experts_per_token=9"])


def test_a_width_that_no_layer_has_is_warned_about(load_text: Load) -> None:
    loaded = load_text(TINY, ["model.preset=qwen3-30b-a3b", "model.ffn=1024"])
    assert any("model.ffn has no effect" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.kv_heads=2", "has no grouped heads; expected 16"),
        ("model.head_dim=64", "a head turns 64 of its 64 dims"),
        ("model.rope_head_dim=200", "a head turns 200 of its 192 dims"),
        ("model.rope_head_dim=33", "33 is odd"),
        ("model.dense_layers=28", "the first 28 layers are dense, and there are 27"),
        ("model.expert_groups=4", "chooses among all experts; leave it out"),
        ("model.window=4", "has no sliding window; leave it out"),
        ("model.experts_per_token=65", "65 experts a token, and a layer has 64"),
    ],
)
def test_latent_attention_has_rules_of_its_own(load_text: Load, change: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load_text(TINY, ["model.preset=deepseek-v2-lite", change])


def test_groups_of_experts_are_equal(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="experts = 250 is no multiple of 8 groups"):
        load_text(TINY, ["model.preset=deepseek-v3", "model.experts=250"])


def test_shape_of_latent_attention_can_be_overridden(load_text: Load) -> None:
    sizes = {"q_rank": 0, "kv_rank": 96, "rope_head_dim": 32, "v_head_dim": 64}
    layers = {"shared_ffn": 640, "dense_layers": 0, "expert_groups": 4, "topk_groups": 3}
    changes = [f"model.{key}={value}" for key, value in (sizes | layers).items()]
    model = load_text(TINY, ["model.preset=deepseek-v3", *changes]).model
    assert {key: getattr(model, key) for key in sizes | layers} == sizes | layers


def test_more_groups_than_there_are(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="the best 9 groups, and there are 8"):
        load_text(TINY, ["model.preset=deepseek-v3", "model.topk_groups=9"])
