"""Short forms written out: ``model: llama-2-7b`` means ``model: {preset: llama-2-7b}``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from simulator.documents.node import DEFAULT, Map, Node, Origin, Scalar, find, place, scalar
from simulator.plan.precision import RECIPES
from simulator.scenario.frameworks import framework_in, rules_of
from simulator.scenario.precision import PATH as PRECISION
from simulator.scenario.precision import spelled_out

Path = tuple[str, ...]

_FIRST_KEYS: dict[Path, str] = {
    ("model",): "preset",
    ("training", "optimizer"): "name",
    ("training", "activation_checkpointing"): "mode",
    ("training", "fine_tuning"): "method",
}
_QLORA = "qlora"


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
    if key == "name":
        values |= _implemented(node)
    origins: dict[str, Origin] = dict.fromkeys(values, node.origin)
    return Map(values, node.origin, origins)


def short_optimizers() -> dict[str, tuple[str, ...]]:
    """Short forms of an optimizer, each with its name and, where it says so, implementation.

    >>> short_optimizers()["adamw-fused"], short_optimizers()["adamw-8bit"]
    (('adamw', 'fused'), ('adamw-8bit',))
    """
    from simulator.lowering.optimizer import OPTIMIZERS

    forms: dict[str, tuple[str, ...]] = {name: (name,) for name, _ in OPTIMIZERS}
    ways = Counter(name for name, _ in OPTIMIZERS)
    return forms | {f"{n}-{way}": (n, way) for n, way in OPTIMIZERS if ways[n] > 1}


def _implemented(node: Scalar) -> dict[str, Node]:
    """``adamw-fused`` is adamw, implementation fused."""
    words = short_optimizers().get(str(node.value), ())
    keys = ("name", "implementation")
    return {key: scalar(word, node.origin) for key, word in zip(keys, words, strict=False)}


def as_text(tree: Map, paths: Iterable[Path]) -> Map:
    """``tree`` with the numbers at ``paths`` as they were written: 2.10 is no 2.1."""
    for path in paths:
        node = find(tree, path)
        if isinstance(node, Scalar) and isinstance(node.value, int | float):
            tree = place(tree, path, Scalar(node.text, node.text, node.origin))
    return tree


def spell_out_recipe(tree: Map) -> Map:
    """``tree`` with its precision as a map, so that one dtype of it can change."""
    usual = rules_of(framework_in(tree)).precision
    node = find(tree, PRECISION) or scalar(usual, DEFAULT)
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
