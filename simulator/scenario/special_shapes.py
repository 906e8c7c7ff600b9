"""Shape fields that only some families have: experts, latent attention, windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, origin_of
from simulator.model.config import ModelConfig

LATENT = ("deepseek_v2", "deepseek_v3")
"""Families whose keys and values come from a latent, for as many heads as the queries."""


def _is_mixture(base: ModelConfig) -> bool:
    return base.experts > 0


def _shares(base: ModelConfig) -> bool:
    return base.shared_ffn > 0


def _is_latent(base: ModelConfig) -> bool:
    return base.family in LATENT


def _is_grouped(base: ModelConfig) -> bool:
    return base.expert_groups > 0


def _slides(base: ModelConfig) -> bool:
    return base.window is not None


SPECIAL: Mapping[str, tuple[Callable[[ModelConfig], bool], str]] = {
    "experts": (_is_mixture, "has no routed experts"),
    "experts_per_token": (_is_mixture, "has no routed experts"),
    "expert_ffn": (_is_mixture, "has no routed experts"),
    "experts_implementation": (_is_mixture, "has no routed experts"),
    "shared_ffn": (_shares, "has no shared experts"),
    "dense_layers": (_is_latent, "has layers of one kind"),
    "expert_groups": (_is_grouped, "chooses among all experts"),
    "topk_groups": (_is_grouped, "chooses among all experts"),
    "q_rank": (_is_latent, "has no latent attention"),
    "kv_rank": (_is_latent, "has no latent attention"),
    "rope_head_dim": (_is_latent, "has no latent attention"),
    "v_head_dim": (_is_latent, "has no latent attention"),
    "window": (_slides, "has no sliding window"),
}
"""By key: which models have it, and what is said of the others."""


def special_of(base: ModelConfig) -> tuple[str, ...]:
    """The keys of ``SPECIAL`` that the model has."""
    return tuple(key for key, (has, _) in SPECIAL.items() if has(base))


def check_special(
    base: ModelConfig, shape: ModelConfig, given: dict[str, Any], tree: Map, mistakes: Mistakes
) -> None:
    """Keys that the model has no use for; sizes that do not go together."""
    idle = {key: words for key, (has, words) in SPECIAL.items() if key in given and not has(base)}
    for key, words in idle.items():
        mistakes.at(tree, ("model", key), f"{base.name} {words}; leave it out", of_key=True)
    if idle:
        return
    for keys, wrong, text in (*_experts(shape), *_layers(shape), *_heads(shape)):
        if wrong:
            mistakes.at(tree, first_given(tree, keys), text)
            return


Check = tuple[tuple[str, ...], bool, str]


def _experts(shape: ModelConfig) -> tuple[Check, ...]:
    chosen, groups = shape.experts_per_token, shape.expert_groups
    return (
        (
            ("experts_per_token", "experts"),
            chosen > shape.experts,
            f"{chosen} experts a token, and a layer has {shape.experts}",
        ),
        (
            ("experts", "expert_groups"),
            groups > 0 and shape.experts % groups > 0,
            f"experts = {shape.experts} is no multiple of {groups} groups",
        ),
        (
            ("topk_groups", "expert_groups"),
            shape.topk_groups > groups,
            f"the best {shape.topk_groups} groups, and there are {groups}",
        ),
    )


def _layers(shape: ModelConfig) -> tuple[Check, ...]:
    dense = shape.dense_layers
    text = f"the first {dense} layers are dense, and there are {shape.layers}"
    return ((("dense_layers", "layers"), dense > shape.layers, text),)


def _heads(shape: ModelConfig) -> tuple[Check, ...]:
    turned = shape.rope_head_dim
    return (
        (
            ("head_dim", "rope_head_dim"),
            shape.head_dim <= turned,
            f"a head turns {turned} of its {shape.head_dim} dims; expected more than that",
        ),
        (("rope_head_dim",), turned % 2 > 0, f"{turned} is odd; rotary positions need an even one"),
    )


def first_given(tree: Map, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The first of ``keys`` that the user wrote: the place to point at."""
    paths = [("model", key) for key in keys]
    return next((p for p in paths if origin_of(tree, p) != origin_of(tree, ("model",))), paths[0])
