"""One map of a data file, read key by key; every mistake names file, key, found and allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeVar

from simulator.datafiles import read_yaml
from simulator.errors import UnitError, UserError, did_you_mean
from simulator.units import parse_bytes, parse_flops, parse_power, parse_rate, parse_time

T = TypeVar("T", int, float)


class Section:
    """A map of ``file`` at the dotted ``place``; remembers which of its keys were asked for."""

    def __init__(self, file: Path, values: Mapping[str, Any], place: str = "") -> None:
        """Read ``values``, which stand in ``file`` at ``place`` ("" = the whole file)."""
        self.file, self.place, self._values = file, place, values
        self._asked: dict[str, None] = {}

    @contextmanager
    def closing(self) -> Iterator[Section]:
        """Afterwards refuse what nobody asked for."""
        yield self
        for key in self._values:
            if key not in self._asked:
                raise self.wrong(str(key), f"unknown key{did_you_mean(str(key), self._asked)}")

    def wrong(self, key: str, why: str) -> UserError:
        """The error to raise about ``key``."""
        return UserError(f"{self.file}: {self.place}{key}: {why}")

    def has(self, key: str) -> bool:
        """Whether ``key`` is given and not null."""
        return self._get(key) is not None

    def text(self, key: str) -> str:
        """Text, not empty. Raises UserError."""
        found = self._get(key)
        if not isinstance(found, str) or not found.strip():
            raise self._refused(key, "text")
        return found

    def flag(self, key: str) -> bool:
        """True or false. Raises UserError."""
        found = self._get(key)
        if not isinstance(found, bool):
            raise self._refused(key, "true or false")
        return found

    def count(self, key: str, least: int = 1) -> int:
        """A whole number from ``least`` to 4096. Raises UserError."""
        found = self._get(key)
        if type(found) is not int or not least <= found <= 4096:
            raise self._refused(key, f"a whole number from {least} to 4096")
        return found

    def number(self, key: str, low: float, high: float) -> float:
        """A number above ``low`` and at most ``high``. Raises UserError."""
        found = self._get(key)
        if type(found) not in (int, float) or not low < found <= high:
            bound = f" and at most {high:g}" if math.isfinite(high) else ""
            raise self._refused(key, f"a number above {low:g}{bound}")
        return float(found)

    def size(self, key: str) -> int:
        """Bytes, above 0, of a size such as ``80 GiB``. Raises UserError."""
        return self._quantity(key, parse_bytes)

    def rate(self, key: str) -> float:
        """Bytes per second, at least 1, of a rate such as ``400 Gbit/s``. Raises UserError."""
        found = self._quantity(key, parse_rate)
        if found < 1:
            raise self._refused(key, "a rate of at least 1 B/s")
        return found

    def flops(self, key: str) -> float:
        """FLOP per second, above 0, of a rate such as ``989 TFLOP/s``. Raises UserError."""
        return self._quantity(key, parse_flops)

    def power(self, key: str) -> float:
        """Watts, above 0, of a power such as ``700 W``. Raises UserError."""
        return self._quantity(key, parse_power)

    def time(self, key: str) -> float:
        """Seconds, above 0, of a time such as ``0.6 us``. Raises UserError."""
        return self._quantity(key, parse_time)

    def section(self, key: str) -> Section:
        """The map below ``key``. Raises UserError."""
        found = self._get(key)
        if not isinstance(found, dict):
            raise self._refused(key, "a map")
        return Section(self.file, found, f"{self.place}{key}.")

    def __iter__(self) -> Iterator[str]:
        """The keys that are given, as text."""
        return map(str, self._values)

    def _get(self, key: str) -> Any:
        self._asked[key] = None
        return self._values.get(key)

    def _quantity(self, key: str, parse: Callable[[str], T]) -> T:
        if not self.has(key):
            raise self._refused(key, "a number with its unit")
        try:
            value = parse(self._get(key))
        except UnitError as error:
            raise self.wrong(key, str(error)) from None
        if not value:
            raise self._refused(key, "more than 0")
        return value

    def _refused(self, key: str, allowed: str) -> UserError:
        """Missing, with the key that may have been meant, or given and not ``allowed``."""
        if self.has(key):
            return self.wrong(key, f"is {short(self._get(key))}; it must be {allowed}")
        hint = did_you_mean(key, [other for other in self if other not in self._asked])
        meant = f" ({hint[2:]})" if hint.endswith("?") else ""
        return self.wrong(key, f"is missing{meant}; it must be {allowed}")


def read_section(file: Path) -> Section:
    """The whole of a data file. Raises UserError where it is no YAML map."""
    return Section(file, read_yaml(file))
