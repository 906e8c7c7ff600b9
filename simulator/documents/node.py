"""A document as a tree in which every value remembers where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

Plain: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value stands: a file with line and column from 1, or (line 0) a word for it."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """``file:line``, or the word alone."""
        return f"{self.source}:{self.line}" if self.line else self.source


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value and the text it was read from."""

    value: Plain
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Map:
    """A map; ``keys`` has the origin of each key, which may differ from its value's."""

    items: Mapping[str, Node]
    origin: Origin
    keys: Mapping[str, Origin] = field(default_factory=dict)


Node: TypeAlias = Scalar | Sequence | Map


def scalar(value: Plain, origin: Origin) -> Scalar:
    """A scalar with the text that YAML would read back as ``value``."""
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else str(value)
    return Scalar(value, text, origin)


def plain(node: Node) -> Any:
    """The tree as dicts, lists and values, without origins."""
    match node:
        case Map():
            return {key: plain(item) for key, item in node.items.items()}
        case Sequence():
            return [plain(item) for item in node.items]
        case Scalar():
            return node.value


def find(node: Node, path: tuple[str, ...]) -> Node | None:
    """The node at ``path``, or None where the path ends early."""
    found: Node | None = node
    for key in path:
        found = found.items.get(key) if isinstance(found, Map) else None
    return found


def place(node: Node, path: tuple[str, ...], new: Node) -> Map:
    """A copy of the tree with ``new`` at ``path``; maps on the way are made where missing."""
    here = node if isinstance(node, Map) else Map({}, new.origin)
    key, *rest = path
    inner = place(here.items.get(key, Map({}, new.origin)), tuple(rest), new) if rest else new
    keys = here.keys if key in here.items else {**here.keys, key: new.origin}
    return Map({**here.items, key: inner}, here.origin, keys)


def remove(node: Node, path: tuple[str, ...]) -> Node:
    """A copy of the tree without what stands at ``path``."""
    key, *rest = path
    if not isinstance(node, Map) or key not in node.items:
        return node
    items = dict(node.items)
    if rest:
        items[key] = remove(items[key], tuple(rest))
    else:
        del items[key]
    return Map(items, node.origin, node.keys)


def merge(base: Map, over: Map) -> Map:
    """``base`` with what ``over`` says: maps merge, a null deletes, all else replaces."""
    items, keys = dict(base.items), dict(base.keys)
    for key, item in over.items.items():
        known = items.get(key)
        if known is not None and isinstance(item, Scalar) and item.value is None:
            del items[key]
            continue
        both = isinstance(known, Map) and isinstance(item, Map)
        items[key] = merge(cast(Map, known), cast(Map, item)) if both else item
        keys[key] = over.keys.get(key, item.origin)
    return Map(items, over.origin, keys)


def leaves(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Scalar | Sequence]]:
    """Each value below ``node`` that is no map, with its dotted key."""
    if isinstance(node, Map):
        for key, item in node.items.items():
            yield from leaves(item, (*path, key))
    else:
        yield ".".join(path), node


def origin_of(node: Node, path: tuple[str, ...], *, key: bool = False) -> Origin:
    """Where the value (with ``key``: its key) at ``path`` stands, else the closest thing above."""
    if not path:
        return node.origin
    if not isinstance(node, Map) or path[0] not in node.items:
        return node.origin
    if key and len(path) == 1:
        return node.keys.get(path[0], node.items[path[0]].origin)
    return origin_of(node.items[path[0]], path[1:], key=key)
