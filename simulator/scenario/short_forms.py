"""Short forms written out: ``model: llama-2-7b`` means ``model: {preset: llama-2-7b}``."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.plan.precision import RECIPES
from simulator.scenario.node import DEFAULT, Map, Node, Origin, Scalar, find, place, scalar
from simulator.scenario.precision import PATH as PRECISION
from simulator.scenario.precision import spelled_out

Path = tuple[str, ...]

_FIRST_KEYS: dict[Path, str] = {
    ("model",): "preset",
    ("training", "optimizer"): "name",
    ("training", "activation_checkpointing"): "mode",
    ("training", "fine_tuning"): "method",
}
_FUSED, _QLORA = "adamw-fused", "qlora"


def spell_out(tree: Map) -> Map:
    """``tree`` with every short form as its map, at the place of the short form."""
    for path, key in _FIRST_KEYS.items():
        node = find(tree, path)
        if isinstance(node, Scalar) and node.value is not None:
            tree = place(tree, path, _map_of(key, node))
    return tree


def _map_of(key: str, node: Scalar) -> Map:
    values: dict[str, Node] = {key: node}
    if key == "method" and node.value == _QLORA:
        values = {"method": scalar("lora", node.origin), "base": scalar("nf4", node.origin)}
    if key == "name" and node.value == _FUSED:
        values = {
            "name": scalar("adamw", node.origin),
            "implementation": scalar("fused", node.origin),
        }
    origins: dict[str, Origin] = dict.fromkeys(values, node.origin)
    return Map(values, node.origin, origins)


def as_text(tree: Map, paths: Iterable[Path]) -> Map:
    """``tree`` with the numbers at ``paths`` as they were written: 2.10 is no 2.1."""
    for path in paths:
        node = find(tree, path)
        if isinstance(node, Scalar) and isinstance(node.value, int | float):
            tree = place(tree, path, Scalar(node.text, node.text, node.origin))
    return tree


def spell_out_recipe(tree: Map) -> Map:
    """``tree`` with its precision as a map, so that one dtype of it can change."""
    node = find(tree, PRECISION) or scalar("fsdp-mixed", DEFAULT)
    if not isinstance(node, Scalar) or node.value not in RECIPES:
        return tree
    words = spelled_out(str(node.value))
    items: dict[str, Node] = {key: scalar(word, node.origin) for key, word in words.items()}
    return place(tree, PRECISION, Map(items, node.origin, dict.fromkeys(items, node.origin)))


def without_nulls(node: Map, keep: frozenset[Path] = frozenset(), path: Path = ()) -> Map:
    """``node`` without the keys set to null, which mean *left out*; those of ``keep`` stay."""
    kept: dict[str, Node] = {}
    for key, item in node.items.items():
        here = (*path, key)
        if isinstance(item, Map):
            kept[key] = without_nulls(item, keep, here)
        elif not isinstance(item, Scalar) or item.value is not None or here in keep:
            kept[key] = item
    return Map(kept, node.origin, node.keys)
