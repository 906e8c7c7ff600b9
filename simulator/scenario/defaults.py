"""Filling in what a scenario leaves out, each value with the word for where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.documents.node import DEFAULT, Map, Node, Origin, Plain, Scalar, Sequence, scalar
from simulator.scenario.schema import SECTIONS, Section

Path = tuple[str, ...]
Derived = Mapping[Path, tuple[Plain, str]]
"""Values that no default of the schema gives, each with where it comes from."""

_ONLY_IF_GIVEN = ("expect", "measured")


def complete(tree: Map, name: Scalar, derived: Derived) -> Map:
    """``tree`` with every value that it leaves out; ``expect`` and ``measured`` only if given."""
    items: dict[str, Node] = {"name": name, "as_of": tree.items.get("as_of", scalar(None, DEFAULT))}
    for key, section in SECTIONS.items():
        given = tree.items.get(key)
        if given is None and key not in _ONLY_IF_GIVEN:
            given = Map({}, DEFAULT)
        if isinstance(given, Map):
            items[key] = _fill_in(given, section, derived, (key,))
    for key, left_out in (("launcher", None), ("allocator", "auto")):
        items[key] = tree.items.get(key, scalar(left_out, DEFAULT))
    if "what_if" in tree.items:
        items["what_if"] = tree.items["what_if"]
    return Map(items, tree.origin, tree.keys)


def _default(value: Any) -> Node:
    if isinstance(value, tuple):
        return Sequence(tuple(scalar(item, DEFAULT) for item in value), DEFAULT)
    return scalar(value, DEFAULT)


def _fill_in(node: Map, section: type[Section], derived: Derived, path: Path) -> Map:
    """``node`` with every key of ``section``, in the section's order."""
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
            items[key] = _default(entry.default)
    return Map(items, node.origin, node.keys)
