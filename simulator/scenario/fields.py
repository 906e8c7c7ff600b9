"""Kinds of values a key may hold, as pydantic types that speak our language.

Each kind is a function of what is allowed that gives a validator; a value that is refused raises
``ValueError`` with a sentence that says what was found and what is allowed. It carries the JSON
Schema of what a user may write, which editors read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BeforeValidator

from simulator.documents.scalars import shorten
from simulator.errors import ScenarioError, UnitError, did_you_mean
from simulator.scenario.bounds import Bound, parse_bound

_BOOLEAN_WORDS = frozenset(
    word
    for pair in ("on off", "yes no", "y n", "true false")
    for lower in pair.split()
    for word in (lower, lower.upper(), lower.title())
)


class ElsewhereError(ValueError):
    """A value names a file that has mistakes of its own."""

    def __init__(self, error: ScenarioError) -> None:
        """Carry them."""
        super().__init__(str(error))
        self.mistakes = error.mistakes


class NotYetError(ValueError):
    """A value that dryfit knows but this version does not carry out."""


@dataclass(frozen=True, slots=True)
class Kind(BeforeValidator):
    """A validator with the JSON Schema of what a user writes.

    ``names``: the catalogue whose names a value is one of.
    """

    schema: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    names: str = ""


def kind_of(value: object) -> str:
    """How a message names a value: ``a map``, ``a list``, ``nothing`` or the value itself."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else shorten(value)


def whole(least: int, most: int) -> Kind:
    """A whole number from ``least`` to ``most``."""

    def check(value: object) -> int:
        allowed = f"expected a whole number from {least:,} to {most:,}"
        if isinstance(value, float) and value.is_integer() and least <= value <= most:
            raise ValueError(f"{allowed}, found {value!r}; write {int(value)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{allowed}, found {kind_of(value)}{_number_hint(value)}")
        if not least <= value <= most:
            raise ValueError(f"{allowed}, found {value}")
        return value

    return Kind(check, schema={"type": "integer", "minimum": least, "maximum": most})


AUTO = "auto"


def elements(least: int = 0) -> Kind:
    """A count of elements, also as ``5e8``; ``auto`` leaves it to the launcher's formula."""
    inner: Any = whole(least, 10**12)

    def check(value: object) -> int | str:
        if value == AUTO:
            return AUTO
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return int(inner.func(value))

    number = {"type": "number", "minimum": least, "maximum": 10**12}
    return Kind(check, schema={"anyOf": [number, {"const": AUTO}]})


def _number_hint(value: object) -> str:
    if not isinstance(value, str):
        return ""
    if value.replace("_", "").isdigit() or value.replace(",", "").isdigit():
        return "; write the digits alone, without quotes or separators"
    return "; 60-based numbers are not read" if value.replace(":", "").isdigit() else ""


def number(least: float, most: float, *, above: bool = False) -> Kind:
    """A number from ``least`` (``above``: greater than it) to ``most``."""

    def check(value: object) -> float:
        low = f"above {least:g}" if above else f"of {least:g} or more"
        allowed = f"expected a number {low}, up to {most:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{allowed}, found {kind_of(value)}{_number_hint(value)}")
        if not math.isfinite(value) or not least <= value <= most or (above and value == least):
            raise ValueError(f"{allowed}, found {value}")
        return float(value)

    bottom = "exclusiveMinimum" if above else "minimum"
    return Kind(check, schema={"type": "number", bottom: least, "maximum": most})


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    is_word = isinstance(value, str) and value in _BOOLEAN_WORDS
    hint = "; write it as true or false, in small letters" if is_word else ""
    raise ValueError(f"expected true or false, found {kind_of(value)}{hint}")


FLAG = Kind(_flag, schema={"type": "boolean"})
"""``true`` or ``false``."""


def check_line(value: object) -> str:
    """``value`` as one line of text. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected text, found {kind_of(value)}")
    text = str(value)
    if not text.strip() or len(text) > 500 or not text.isprintable():
        raise ValueError(f"expected one line of at most 500 characters, found {shorten(text)}")
    return text


LINE = Kind(check_line, schema={"type": ["string", "number"]})
"""One line of text; a number is read as the text it is."""


def choice(
    supported: Iterable[str],
    later: Iterable[str] = (),
    *,
    shown: Iterable[str] = (),
    hints: Mapping[str, str] | None = None,
) -> Kind:
    """One of ``supported``; what is in ``later`` is known, but not yet carried out.

    ``shown``: the supported ones as a message lists them. ``hints``: what to say of values whose
    nearest name means something else.
    """
    aliases = hints or {}
    can = tuple(supported)
    known, listed = (*can, *later), ", ".join(shown or can)

    def check(value: object) -> str:
        if value in can and isinstance(value, str):
            return value
        allowed = f"supported: {listed}"
        if isinstance(value, str) and value in known:
            raise NotYetError(f"{shorten(value)}; {allowed}")
        if not isinstance(value, str):
            raise ValueError(f"expected a name, found {kind_of(value)}; {allowed}")
        hint = aliases.get(value) or near(value, known)
        raise ValueError(f"unknown value {shorten(value)}; {allowed}{hint}")

    return Kind(check, schema={"enum": list(can)})


def near(value: str, known: Iterable[str]) -> str:
    """The closest name, if any; none for ``on`` or ``no``, whose closest may be the opposite."""
    hint = "" if value in _BOOLEAN_WORDS else did_you_mean(value, known)
    return hint if "did you mean" in hint else ""


def quantity(parse: Callable[[str], Any], *, above_zero: bool = False) -> Kind:
    """A number with its unit, read by one of the parsers of ``simulator.units``."""

    def check(value: object) -> Any:
        if isinstance(value, dict | list | bool) or value is None:
            raise ValueError(f"expected a quantity with its unit, found {kind_of(value)}")
        try:
            found = parse(str(value))
        except UnitError as error:
            raise ValueError(str(error)) from None
        if above_zero and not found:
            raise ValueError(f"expected more than 0, found {kind_of(value)}")
        return found

    return Kind(check, schema={"type": "string", "pattern": r"^\s*[0-9.]"})


def bound(parse: Callable[[str], float]) -> Kind:
    """A comparison such as ``<= 76 GiB``, whose quantity ``parse`` reads."""

    def check(value: object) -> Bound:
        if not isinstance(value, str):
            raise ValueError(f'expected a comparison as "<= 10", found {kind_of(value)}')
        try:
            return parse_bound(value, parse)
        except UnitError as error:
            raise ValueError(str(error)) from None

    return Kind(check, schema={"type": "string", "pattern": r"^\s*(<=|>=|<|>)"})
