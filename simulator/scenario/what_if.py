"""``what_if:``, named changes of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Node, Scalar, Sequence, find, plain, remove
from simulator.errors import UserError
from simulator.scenario.changes import apply_changes
from simulator.scenario.fields import check_line, kind_of

LATER = ("rank", "compute", "link", "rate")
"""Keys of the kinds of what-if that this version knows but does not carry out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One change and its name: values by dotted key."""

    name: str
    set: dict[str, Any] = field(hash=False)


def resolve_what_if(tree: Map, mistakes: Mistakes) -> tuple[WhatIf, ...]:
    """The entries of ``what_if:`` whose form is right; the rest joins ``mistakes``.

    What their changes lead to is judged by ``loading.load``.
    """
    node = tree.items.get("what_if")
    if node is None:
        return ()
    if not isinstance(node, Sequence):
        text = f"expected a list of {{name, set}}, found {kind_of(plain(node))}"
        mistakes.at(tree, ("what_if",), text)
        return ()
    found = [_entry(each, number, mistakes) for number, each in enumerate(node.items)]
    return tuple(entry for entry in found if entry is not None)


def changed_documents(document: Map, mistakes: Mistakes) -> Iterator[tuple[str, Map]]:
    """What ``document`` becomes under each entry, with the entry's key.

    Values keep the place where the entry has them. A key that is no dotted one joins ``mistakes``.
    """
    entries = document.items.get("what_if")
    base = cast(Map, remove(document, ("what_if",)))
    for number, entry in enumerate(entries.items if isinstance(entries, Sequence) else ()):
        changes, key = find(entry, ("set",)), f"what_if[{number}].set"
        if isinstance(changes, Map) and changes.items:
            try:
                yield key, apply_changes(base, changes.items.items())
            except UserError as error:
                mistakes.add(changes.origin, key, str(error))


def _entry(node: Node, number: int, mistakes: Mistakes) -> WhatIf | None:
    key = f"what_if[{number}]"
    if not isinstance(node, Map):
        mistakes.add(node.origin, key, f"expected a map of name and set, found {_found(node)}")
        return None
    for other in node.items:
        if other in LATER:
            text = f"not yet supported in this version: what_if by {other}; supported: set"
            mistakes.add(node.keys.get(other, node.origin), key, text)
            return None
        if other not in ("name", "set"):
            text = "unknown key; known: name, set"
            mistakes.add(node.keys.get(other, node.origin), f"{key}.{other}", text)
    changes = node.items.get("set")
    if not isinstance(changes, Map) or not changes.items:
        where = node.origin if changes is None else changes.origin
        found = "nothing" if changes is None else _found(changes)
        text = f"expected a map of dotted keys, as {{training.micro_batch: 4}}, found {found}"
        mistakes.add(where, f"{key}.set", text)
        return None
    return WhatIf(name=_name(node, changes, key, mistakes), set=plain(changes))


def _name(node: Map, changes: Map, key: str, mistakes: Mistakes) -> str:
    """As written, or the changes themselves."""
    named = node.items.get("name")
    if named is None:
        return ", ".join(f"{name}={plain(item)}" for name, item in changes.items.items())
    try:
        return check_line(plain(named))
    except ValueError as error:
        mistakes.add(named.origin, f"{key}.name", str(error))
        return ""


def _found(node: Node) -> str:
    return kind_of(node.value if isinstance(node, Scalar) else plain(node))
