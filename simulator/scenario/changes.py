"""The one mechanism for change: dotted keys and their new values, laid over a scenario's tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Node, Origin, Scalar, Sequence, place, scalar
from simulator.documents.scalars import shorten
from simulator.documents.yaml_reader import MAX_DEPTH, MAX_NODES, read_yaml
from simulator.errors import UserError
from simulator.scenario.precision import PATH as PRECISION
from simulator.scenario.short_forms import spell_out, spell_out_recipe

FLAG = Origin("flag --set")
CHANGE = Origin("change")
_MOST_DIGITS = 40


def parse_set(text: str, mistakes: Mistakes) -> tuple[str, Node]:
    """``training.micro_batch=4`` as a dotted key and a value read as YAML. Raises UserError.

    >>> parse_set("training.micro_batch=4", Mistakes())[1].value
    4
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {shorten(text)}: expected KEY=VALUE, as training.micro_batch=4")
    if not value.strip():
        raise UserError(f"--set {shorten(text)}: the value is missing; null leaves the key out")
    key, found = key.strip(), Mistakes()
    node = read_yaml(value, f"--set {key}", found)
    for each in found.found:  # of the key, so that its validation does not tell them again
        mistakes.add(FLAG, ".".join(part for part in (key, each.key) if part), each.text)
    return key, _moved(node, FLAG)


def _moved(node: Node, origin: Origin) -> Node:
    """The same values, all standing at ``origin``."""
    match node:
        case Map():
            items = {key: _moved(item, origin) for key, item in node.items.items()}
            return Map(items, origin, dict.fromkeys(items, origin))
        case Sequence():
            return Sequence(tuple(_moved(item, origin) for item in node.items), origin)
        case Scalar():
            return Scalar(node.value, node.text, origin)


def apply_changes(tree: Map, changes: Iterable[tuple[str, Node]]) -> Map:
    """``tree`` with each change in place, later ones winning; short forms are spelled out."""
    tree = spell_out(tree)
    for key, node in changes:
        path = tuple(key.split("."))
        if not all(path) or len(path) > MAX_DEPTH:
            raise UserError(f"{shorten(key)} is no dotted key; write it as training.micro_batch")
        if path[:2] == PRECISION and len(path) > len(PRECISION):
            tree = spell_out_recipe(tree)
        tree = spell_out(place(tree, path, node))
    return tree


def from_python(value: Any, origin: Origin) -> Node:
    """A tree of plain Python maps, lists and values. Raises UserError for anything else."""
    return _Converter(origin).convert(value, 0)


class _Converter:
    """Counts what it converts, so that a value that contains itself ends in an error."""

    def __init__(self, origin: Origin) -> None:
        self.origin, self.nodes = origin, 0

    def convert(self, value: Any, depth: int) -> Node:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise UserError(f"the {self.origin} is nested too deep or has too many values")
        if isinstance(value, Mapping):
            items = {self._key(key): self.convert(item, depth + 1) for key, item in value.items()}
            return Map(items, self.origin, dict.fromkeys(items, self.origin))
        if isinstance(value, list | tuple):
            items_ = tuple(self.convert(item, depth + 1) for item in value)
            return Sequence(items_, self.origin)
        if isinstance(value, Integral) and not isinstance(value, bool):
            return scalar(self._whole(int(value)), self.origin)
        if value is None or isinstance(value, str | float | bool):
            return scalar(value, self.origin)
        raise UserError(f"the {self.origin} holds a {type(value).__name__}, which is no YAML value")

    def _whole(self, value: int) -> int:
        if abs(value) >= 10**_MOST_DIGITS:
            raise UserError(f"the {self.origin} has a number of more than {_MOST_DIGITS} digits")
        return value

    def _key(self, key: object) -> str:
        if isinstance(key, str | int | float):
            return str(key)
        raise UserError(f"the {self.origin} has a key that is no text: {shorten(key)}")
