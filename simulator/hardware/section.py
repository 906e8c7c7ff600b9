"""One map of a data file, read key by key.

A mistake is noted with its place, and reading goes on with a value that stands in, so that all of
a file's mistakes are told at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from reprlib import repr as short
from typing import Any, TypeVar

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, find, plain
from simulator.errors import UnitError, did_you_mean
from simulator.units import parse_bytes, parse_flops, parse_power, parse_rate, parse_time

T = TypeVar("T", int, float)


class Section:
    """The map at ``path`` of a file's ``tree``; remembers which of its keys were asked for.

    A map that isn't there is read in silence: that it is missing is the mistake.
    """

    def __init__(self, tree: Map, mistakes: Mistakes, path: tuple[str, ...] = ()) -> None:
        """Read what stands at ``path``; what is wrong joins ``mistakes``."""
        self._tree, self._mistakes, self._path = tree, mistakes, path
        here = find(tree, path)
        self._there = isinstance(here, Map)
        self._values = here.items if isinstance(here, Map) else {}
        self._asked: dict[str, None] = {}

    @contextmanager
    def closing(self) -> Iterator[Section]:
        """Afterwards refuse what nobody asked for."""
        yield self
        for key in self._values:
            if key not in self._asked:
                self.wrong(key, f"unknown key{did_you_mean(key, self._asked)}", of_key=True)

    @property
    def sound(self) -> bool:
        """Whether no mistake was found so far: what depends on several keys can be judged."""
        return not self._mistakes.found

    def wrong(self, key: str, why: str, *, of_key: bool = False) -> None:
        """Note what is wrong with the value of ``key``, or with the key itself."""
        if self._there:
            self._mistakes.at(self._tree, (*self._path, key), why, of_key=of_key)

    def give_up(self) -> None:
        """Raise ScenarioError if there is any mistake: what comes next depends on the values."""
        self._mistakes.raise_any()

    def has(self, key: str) -> bool:
        """Whether ``key`` is given and not null."""
        return self._get(key) is not None

    def text(self, key: str) -> str:
        """Text, not empty."""
        found = self._get(key)
        if not isinstance(found, str) or not found.strip():
            self._refused(key, "text")
            return ""
        return found

    def flag(self, key: str) -> bool:
        """True or false."""
        found = self._get(key)
        if not isinstance(found, bool):
            self._refused(key, "true or false")
            return False
        return found

    def count(self, key: str, least: int = 1) -> int:
        """A whole number from ``least`` to 4096."""
        found = self._get(key)
        if type(found) is not int or not least <= found <= 4096:
            self._refused(key, f"a whole number from {least} to 4096")
            return 1
        return found

    def number(self, key: str, low: float, high: float) -> float:
        """A number above ``low`` and at most ``high``."""
        found = self._get(key)
        if type(found) not in (int, float) or not low < found <= high:
            bound = f" and at most {high:g}" if math.isfinite(high) else ""
            self._refused(key, f"a number above {low:g}{bound}")
            return 1.0
        return float(found)

    def size(self, key: str) -> int:
        """Bytes, above 0, of a size such as ``80 GiB``."""
        return self._quantity(key, parse_bytes)

    def rate(self, key: str) -> float:
        """Bytes per second, at least 1, of a rate such as ``400 Gbit/s``."""
        found = self._quantity(key, parse_rate)
        if found < 1:
            self._refused(key, "a rate of at least 1 B/s")
        return max(found, 1.0)

    def flops(self, key: str) -> float:
        """FLOP per second, above 0, of a rate such as ``989 TFLOP/s``."""
        return self._quantity(key, parse_flops)

    def power(self, key: str) -> float:
        """Watts, above 0, of a power such as ``700 W``."""
        return self._quantity(key, parse_power)

    def time(self, key: str) -> float:
        """Seconds, above 0, of a time such as ``0.6 us``."""
        return self._quantity(key, parse_time)

    def section(self, key: str) -> Section:
        """The map below ``key``."""
        if not isinstance(self._get(key), dict):
            self._refused(key, "a map")
        return Section(self._tree, self._mistakes, (*self._path, key))

    def __iter__(self) -> Iterator[str]:
        """The keys that are given."""
        return iter(self._values)

    def _get(self, key: str) -> Any:
        self._asked[key] = None
        return plain(self._values[key]) if key in self._values else None

    def _quantity(self, key: str, parse: Callable[[str], T]) -> T:
        if not self.has(key):
            self._refused(key, "a number with its unit")
            return 1
        try:
            value = parse(self._get(key))
        except UnitError as error:
            self.wrong(key, str(error))
            return 1
        if not value:
            self._refused(key, "more than 0")
        return value or 1

    def _refused(self, key: str, allowed: str) -> None:
        """Missing, or given and not ``allowed``."""
        found = f"is {short(self._get(key))}" if self.has(key) else "is missing"
        self.wrong(key, f"{found}; it must be {allowed}")
