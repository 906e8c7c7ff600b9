"""From ``model:`` to the shape of a model: preset or config.json, overrides, style."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Plain, origin_of
from simulator.errors import UserError
from simulator.model.config import ModelConfig
from simulator.plan.versions import TORCHTUNE_NORM, Software, default_of
from simulator.scenario.catalogue import Catalogue
from simulator.scenario.schema import ModelSection
from simulator.scenario.special_shapes import LATENT, check_special, first_given, special_of

UNGROUPED = ("gpt2", "gpt_neox", "mpt")
"""Families whose keys and values have as many heads as the queries, and cut hidden into them."""

_OF_TORCHTITAN = ("rms_norm", "kv_expand")
_SHAPE = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "head_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """The model, and the words for values that no default of the schema gives."""

    config: ModelConfig
    derived: dict[tuple[str, ...], tuple[Plain, str]]


def resolve_model(
    section: ModelSection,
    style: str | None,
    software: Software,
    directory: Path | None,
    catalogue: Catalogue,
    tree: Map,
    mistakes: Mistakes,
) -> Shaped | None:
    """The model of the scenario; what does not go together joins ``mistakes``.

    ``style``: whose modules run where the scenario doesn't say; None: the preset's.
    """
    found = _named(section, directory, catalogue, tree, mistakes)
    if found is None:
        return None
    base, word = found
    if style is not None:
        base = dataclasses.replace(base, style=style)
    given = section.model_dump(exclude={"preset", "hf_config", "dropout"}, exclude_none=True)
    config = dataclasses.replace(base, **given)
    norm, norm_word = default_of("model.rms_norm", software)
    if config.style == "torchtitan" and "rms_norm" not in given:
        config = dataclasses.replace(config, rms_norm=str(norm))
    if config.style == "torchtune":
        norm = TORCHTUNE_NORM.value(software)
        config = dataclasses.replace(config, rms_norm=str(norm), kv_expand=True)
    config = _shape(config, base, given, tree, mistakes)
    check_special(base, config, given, tree, mistakes)
    config = _dropout(config, section.dropout, tree, mistakes)
    _check_style(config, given, tree, mistakes)
    derived: dict[tuple[str, ...], tuple[Plain, str]] = {
        ("model", key): (getattr(config, key), word) for key in (*_SHAPE, "style")
    }
    if config.style == "torchtitan":
        derived["model", "rms_norm"] = (config.rms_norm, norm_word)
        derived["model", "kv_expand"] = (config.kv_expand, word)
    derived |= {("model", key): (getattr(config, key), word) for key in special_of(base)}
    if config.experts:
        derived["model", "expert_ffn"] = (config.expert_ffn or None, word)
    if section.hf_config is not None:
        derived["model", "preset"] = (None, "hf_config")
    return Shaped(config=config, derived=derived)


def _named(
    section: ModelSection,
    directory: Path | None,
    catalogue: Catalogue,
    tree: Map,
    mistakes: Mistakes,
) -> tuple[ModelConfig, str] | None:
    """The model as its preset or config.json gives it, and the words for where that is."""
    if (section.preset is None) is (section.hf_config is None):
        word = "either preset or hf_config" + (", not both" if section.preset else "")
        where = ("model", "hf_config") if section.preset else ("model",)
        mistakes.at(tree, where, f"it needs {word}", of_key=bool(section.preset))
        return None
    if section.preset is not None:
        return catalogue.model(section.preset), f"preset {section.preset}"
    assert section.hf_config is not None
    path = ("model", "hf_config")
    try:
        found = catalogue.hf_config(section.hf_config, _folder(tree, path, directory))
    except UserError as error:
        mistakes.at(tree, path, str(error))
        return None
    try:
        ModelSection(preset=None, **{key: getattr(found, key) for key in _SHAPE})
    except ValueError as error:
        first: Any = getattr(error, "errors", lambda: [{"loc": ("",), "msg": ""}])()[0]
        mistakes.at(tree, path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        return None
    return found, section.hf_config


def _folder(tree: Map, path: tuple[str, ...], directory: Path | None) -> Path:
    """The folder of the file that holds the value at ``path``; else the scenario's."""
    origin = origin_of(tree, path)
    return Path(origin.source).parent if origin.line else directory or Path()


def _shape(
    shape: ModelConfig,
    base: ModelConfig,
    given: dict[str, Any],
    tree: Map,
    mistakes: Mistakes,
) -> ModelConfig:
    """``shape`` with the head dim and key heads that follow; what does not divide is a mistake.

    A preset whose ``head_dim`` is hidden / heads keeps that rule when either is overridden.
    """
    if shape.family in (*UNGROUPED, *LATENT) and "kv_heads" not in given:
        shape = dataclasses.replace(shape, kv_heads=shape.heads)
    if shape.family in (*UNGROUPED, *LATENT) and shape.kv_heads != shape.heads:
        text = f"{shape.family} has no grouped heads; expected {shape.heads}, or leave it out"
        mistakes.at(tree, ("model", "kv_heads"), text)
    elif shape.heads % shape.kv_heads:
        where = first_given(tree, ("kv_heads", "heads"))
        text = f"heads = {shape.heads} is not a multiple of kv_heads = {shape.kv_heads}"
        mistakes.at(tree, where, text)
    if "head_dim" not in given and base.head_dim * base.heads == base.hidden:
        shape = dataclasses.replace(shape, head_dim=shape.hidden // shape.heads)
        if shape.hidden % shape.heads:
            where = first_given(tree, ("heads", "hidden"))
            text = f"hidden = {shape.hidden} is no multiple of heads = {shape.heads}; set head_dim"
            mistakes.at(tree, where, text)
            return shape
    if shape.family in UNGROUPED and shape.head_dim * shape.heads != shape.hidden:
        text = f"{shape.family} cuts hidden into heads; expected hidden / heads, or leave it out"
        mistakes.at(tree, ("model", "head_dim"), text)
    if shape.head_dim % 2 and not shape.positions:
        where = first_given(tree, ("head_dim", "heads", "hidden"))
        text = f"head_dim = {shape.head_dim} is odd; rotary positions need an even one"
        mistakes.at(tree, where, text)
    return shape


def _dropout(
    config: ModelConfig, given: float | None, tree: Map, mistakes: Mistakes
) -> ModelConfig:
    """Every dropout that the family has, where one is given."""
    if given is None:
        return config
    if config.style != "hf":
        if given:
            text = f"{config.style}'s modules have no dropout; allowed: 0, or style: hf"
            mistakes.at(tree, ("model", "dropout"), text)
        return config
    return dataclasses.replace(
        config, dropout=given, embedding_dropout=given, attention_dropout=given
    )


def _check_style(config: ModelConfig, given: dict[str, Any], tree: Map, mistakes: Mistakes) -> None:
    """The family's modules in that style, and the keys that belong to one style alone."""
    from simulator.model.families import WRITERS

    styles = [style for family, style in WRITERS if family == config.family]
    if config.style not in styles:
        text = f"{config.name} has no modules in style {config.style}; supported: "
        mistakes.at(tree, ("model", "style"), text + ", ".join(styles))
    elif config.style == "torchtitan" and config.tied:
        text = f"{config.name} ties its head to its embedding, which torchtitan's Llama does not"
        mistakes.at(tree, ("model", "style"), f"{text}; supported: hf")
    if config.style != "torchtitan":
        for key in _OF_TORCHTITAN:
            if key in given:
                text = f"has no effect in style {config.style}; leave it out"
                mistakes.at(tree, ("model", key), text, of_key=True)
