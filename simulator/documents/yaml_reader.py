"""A strict YAML reader on PyYAML's safe scanner, which keeps the place of every value.

It builds the tree from events, so no tag constructs an object and no recursion follows the
nesting of the file. Depth and the number of values, aliases expanded, are limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import yaml

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Node, Origin, Scalar, Sequence
from simulator.documents.scalars import ScalarError, plain_scalar, shorten
from simulator.errors import Mistake, ScenarioError

MAX_DEPTH = 50
MAX_NODES = 50_000


def read_yaml(text: str, source: str, mistakes: Mistakes) -> Node:
    """The tree of the one document in ``text``; what does not stop reading joins ``mistakes``.

    Raises ScenarioError where nothing can be read: bad syntax, no document, more than one, or a
    limit passed.
    """
    try:
        return _Builder(source, mistakes).build(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        raise ScenarioError([*mistakes.found, _syntax(error, source)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"is no YAML: the character U+{error.character:04X} is not allowed"
        mistake = Mistake(source=source, line=line, column=1, text=reason)
        raise ScenarioError([*mistakes.found, mistake]) from None
    except (ValueError, OverflowError):  # int() and chr() inside PyYAML's scanner
        mistake = Mistake(source=source, text="is no YAML: an escape or directive is out of range")
        raise ScenarioError([*mistakes.found, mistake]) from None


def _syntax(error: yaml.MarkedYAMLError, source: str) -> Mistake:
    mark = error.problem_mark or error.context_mark
    text = ", ".join(part for part in (error.context, error.problem) if part)
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return Mistake(source=source, line=line, column=column, text=f"is no YAML: {text}")


@dataclass(slots=True)
class _Open:
    """A map or list that is still being read."""

    origin: Origin
    anchor: str | None
    nodes_before: int
    is_map: bool
    values: list[Node] = field(default_factory=list)
    items: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Origin] = field(default_factory=dict)
    key: Scalar | None = None

    def close(self) -> Node:
        if self.is_map:
            return Map(self.items, self.origin, self.keys)
        return Sequence(tuple(self.values), self.origin)


class _Builder:
    """Turns PyYAML's events into a tree of nodes."""

    def __init__(self, source: str, mistakes: Mistakes) -> None:
        self.source, self.mistakes = source, mistakes
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.nodes = 0
        self.root: Node | None = None

    def build(self, events: Iterable[yaml.Event]) -> Node:
        documents = 0
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise self._stop(event, "is a second document; only one is read")
                case yaml.NodeEvent():
                    self._node(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._close()
                case _:
                    pass
        if self.root is None:
            raise ScenarioError([Mistake(source=self.source, text="is empty")])
        return self.root

    def _node(self, event: yaml.NodeEvent) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise self._stop(event, f"the tag {shorten(tag)} is not allowed; no tag is")
        match event:
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.ScalarEvent():
                self._count(event, 1)
                self._add(self._scalar(event), event.anchor, 1)
            case _:
                self._count(event, 1)
                if len(self.open) >= MAX_DEPTH:
                    raise self._stop(event, f"is nested more than {MAX_DEPTH} deep")
                is_map = isinstance(event, yaml.MappingStartEvent)
                self.open.append(_Open(self._origin(event), event.anchor, self.nodes - 1, is_map))

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self.anchors:
            name = shorten(event.anchor)
            raise self._stop(event, f"the alias {name} names no anchor that is complete here")
        node, size = self.anchors[event.anchor]
        self._count(event, size)
        self._add(node, None, size)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        origin = self._origin(event)
        if any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise self._stop(event, "has half of a surrogate pair, which is no text")
        if event.style is not None or event.tag == "!":
            return Scalar(event.value, event.value, origin)
        try:
            return Scalar(plain_scalar(event.value), event.value, origin)
        except ScalarError as error:
            self._report(origin, str(error))
            return Scalar(event.value, event.value, origin)

    def _close(self) -> None:
        done = self.open.pop()
        self._add(done.close(), done.anchor, self.nodes - done.nodes_before)

    def _add(self, node: Node, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (node, size)
        if not self.open:
            self.root = node
        elif not self.open[-1].is_map:
            self.open[-1].values.append(node)
        elif self.open[-1].key is None:
            self._key(self.open[-1], node)
        else:
            self._value(self.open[-1], node)

    def _key(self, parent: _Open, node: Node) -> None:
        if not isinstance(node, Scalar):
            self._report(node.origin, "a key must be a single word, found a map or a list")
            raise ScenarioError(self.mistakes.found)
        parent.key = node

    def _value(self, parent: _Open, node: Node) -> None:
        key = parent.key
        assert key is not None
        parent.key = None
        if key.text == "<<":
            self._report(key.origin, "merge keys (<<) are not read; write the keys out")
            return
        if key.text in parent.keys:
            first = parent.keys[key.text]
            self._report(
                key.origin, f"duplicate key {shorten(key.text)}, first on line {first.line}"
            )
            return
        parent.items[key.text], parent.keys[key.text] = node, key.origin

    def _count(self, event: yaml.Event, size: int) -> None:
        self.nodes += size
        if self.nodes > MAX_NODES:
            raise self._stop(event, f"has more than {MAX_NODES:,} values, aliases expanded")

    def _origin(self, event: yaml.Event) -> Origin:
        mark = event.start_mark
        return Origin(self.source, mark.line + 1, mark.column + 1) if mark else Origin(self.source)

    def _report(self, origin: Origin, text: str) -> None:
        path = [each.key.text for each in self.open if each.key is not None]
        self.mistakes.add(origin, ".".join(path), text)

    def _stop(self, event: yaml.Event, text: str) -> ScenarioError:
        self._report(self._origin(event), text)
        return ScenarioError(self.mistakes.found)
