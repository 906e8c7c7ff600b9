"""Collecting the mistakes of a file, so that all are told at once."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.documents.node import Node, Origin, origin_of
from simulator.errors import Mistake, ScenarioError

MAX_MISTAKES = 100


class Mistakes:
    """The mistakes found so far."""

    def __init__(self) -> None:
        """Begin with none."""
        self.found: list[Mistake] = []
        self._places: set[tuple[str, int, int, str]] = set()

    def add(self, origin: Origin, key: str, text: str) -> None:
        """Note a mistake that stands at ``origin``; only the first of a key and place is kept.

        Raises ScenarioError when there are too many to be of use.
        """
        place = (origin.source, origin.line, origin.column, _safe(key))
        if place in self._places:
            return
        self._places.add(place)
        source, line, column, key = place
        self.found.append(Mistake(source=source, line=line, column=column, key=key, text=text))
        if len(self.found) >= MAX_MISTAKES:
            rest = f"has {MAX_MISTAKES} mistakes or more; the rest is not looked for"
            raise ScenarioError([*self.found, Mistake(source=source, text=rest)])

    def at(self, tree: Node, path: tuple[str, ...], text: str, *, of_key: bool = False) -> None:
        """Note a mistake of the value (or with ``of_key`` the key) at ``path`` of ``tree``."""
        self.add(origin_of(tree, path, key=of_key), ".".join(path), text)

    def extend(self, found: Iterable[Mistake]) -> None:
        """Note mistakes that were found elsewhere."""
        for each in found:
            origin = Origin(each.source, each.line, each.column)
            self.add(origin, each.key, each.text)

    def error(self) -> ScenarioError:
        """The error of all that was found."""
        return ScenarioError(self.found)

    def raise_any(self) -> None:
        """Raise ScenarioError if there is any mistake."""
        if self.found:
            raise ScenarioError(self.found)


def _safe(key: str) -> str:
    """A key that can be printed: control characters escaped, long ones cut."""
    text = key if key.isprintable() else ascii(key)[1:-1]
    return text if len(text) <= 120 else f"{text[:117]}..."
