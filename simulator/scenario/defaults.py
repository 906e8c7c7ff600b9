"""Filling in what a scenario leaves out, each value with the word for where it comes from."""

from __future__ import annotations

from simulator.model.config import ModelConfig
from simulator.plan.plan import Parallelism
from simulator.scenario.node import DEFAULT, Map, Node, Origin, Plain, Scalar, find, plain, scalar
from simulator.scenario.schema import SECTIONS, ModelSection, Section

Path = tuple[str, ...]


def complete(tree: Map, name: Scalar, model: ModelConfig, parallelism: Parallelism) -> Map:
    """``tree`` with every value that it leaves out; ``expect`` and ``measured`` only if given."""
    preset = find(tree, ("model", "preset"))
    word = f"preset {plain(preset)}" if preset else "preset"
    derived: dict[Path, tuple[Plain, str]] = {
        ("model", key): (getattr(model, key), word) for key in _OF_THE_MODEL
    }
    derived["parallelism", "dp_shard"] = (parallelism.dp_shard, "fills the world")
    items: dict[str, Node] = {"name": name}
    for key, section in SECTIONS.items():
        given = tree.items.get(key)
        if isinstance(given, Map):
            items[key] = _fill_in(given, section, derived, (key,))
    return Map(items, tree.origin, tree.keys)


_OF_THE_MODEL = tuple(key for key in ModelSection.model_fields if key != "preset")


def _fill_in(
    node: Map, section: type[Section], derived: dict[Path, tuple[Plain, str]], path: Path
) -> Map:
    """``node`` with every key of ``section``, in the section's order.

    ``derived`` has values that no default of the schema gives, each with where it comes from.
    """
    items: dict[str, Node] = {}
    for key, entry in section.model_fields.items():
        here, inner = (*path, key), entry.annotation
        given = node.items.get(key)
        if isinstance(inner, type) and issubclass(inner, Section):
            below = given if isinstance(given, Map) else Map({}, DEFAULT)
            items[key] = _fill_in(below, inner, derived, here)
        elif given is not None:
            items[key] = given
        elif here in derived:
            value, word = derived[here]
            items[key] = scalar(value, Origin(word))
        else:
            items[key] = scalar(entry.default, DEFAULT)
    return Map(items, node.origin, node.keys)
