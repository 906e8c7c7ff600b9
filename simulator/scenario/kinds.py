"""Kinds of values that are particular to one key or family of keys of a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any

from pydantic import ValidationInfo

from simulator.documents.scalars import shorten
from simulator.errors import ScenarioError, UserError, did_you_mean
from simulator.plan.plan import FP8
from simulator.plan.precision import NEAREST, RECIPES, bytes_per_parameter, nearest, runs_under
from simulator.scenario.bounds import Bound, parse_number
from simulator.scenario.fields import (
    FLAG,
    LINE,
    ElsewhereError,
    Kind,
    NotYetError,
    bound,
    choice,
    kind_of,
    near,
    number,
    quantity,
    whole,
)
from simulator.units import parse_bytes, parse_time

Name = Annotated[str, LINE]
Flag = Annotated[bool, FLAG]
Size = Annotated[int, quantity(parse_bytes)]
MeasuredSize = Annotated[int, quantity(parse_bytes, above_zero=True)]
MeasuredTime = Annotated[float, quantity(parse_time, above_zero=True)]
SizeBound = Annotated[Bound, bound(parse_bytes)]
TimeBound = Annotated[Bound, bound(parse_time)]
NumberBound = Annotated[Bound, bound(parse_number)]
Rate = Annotated[float, number(0, 1e12, above=True)]


def catalogued(kind: str) -> Kind:
    """A name that the catalogue of the validation's context knows under ``kind``."""

    def check(value: object, info: ValidationInfo) -> str:
        if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
            raise ValueError(f"expected the name of a {kind}, found {kind_of(value)}")
        try:
            (info.context or {})[kind](value)
        except ScenarioError as error:
            raise ElsewhereError(error) from None
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    return Kind(check, schema={"type": "string"}, names=kind)


def dtypes() -> Kind:
    """A recipe that the framework can run, or a map of dtypes, which is read later."""

    def check(value: object, info: ValidationInfo) -> object:
        if isinstance(value, dict):
            return value
        framework = str((info.context or {})["framework"])
        if isinstance(value, str) and value in RECIPES and not runs_under(value, framework):
            other = nearest(value, framework)
            raise ValueError(
                f"{framework} cannot run {_sized(value)}; "
                f"the nearest that it can is {_sized(other)}"
            )
        if isinstance(value, str) and value not in RECIPES:
            runs = [name for name in RECIPES if runs_under(name, framework)]
            text = f"unknown value {shorten(value)}; supported under {framework}: {', '.join(runs)}"
            raise ValueError(text + near(value, runs))
        return by_name(value)

    names = [name for name in RECIPES if any(runs_under(name, each) for each in NEAREST)]
    by_name: Any = choice(names, [name for name in RECIPES if name not in names]).func
    return Kind(check, schema={"anyOf": [{"enum": names}, PRECISION_MAP]})


def _sized(recipe: str) -> str:
    return f"{recipe!r} ({bytes_per_parameter(RECIPES[recipe])} B/param)"


_DTYPE = {"enum": ["fp32", "bf16", "fp16"]}
PRECISION_MAP = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys(("parameters", "compute", "gradients", "reduce", "moments"), _DTYPE),
        "autocast": {"type": "boolean"},
        "fp8": {"enum": list(FP8)},
    },
}
"""The JSON Schema of a precision by hand."""


def one_length(most: int) -> Kind:
    """One length for all sequences; a distribution is for later."""
    one: Any = whole(1, most)

    def check(value: object) -> int:
        if isinstance(value, dict):
            raise NotYetError("a distribution of lengths; supported: one whole number")
        return int(one.func(value))

    return Kind(check, schema=one.schema)


def losses(names: Iterable[str], cut: Iterable[str]) -> Kind:
    """The name of a loss; ``cut`` ones are maps that say into how many chunks."""
    chunked = tuple(cut)
    shown = [*(plain := tuple(names)), *(f"{{{name}: 8}}" for name in chunked)]
    count: Any = whole(1, 65_536)

    def check(value: object) -> tuple[str, int]:
        if isinstance(value, dict) and len(value) == 1:
            ((name, chunks),) = value.items()
            if name in chunked:
                return name, count.func(chunks)
            value = name if name not in plain else f"{{{name}: ...}}"
        if isinstance(value, str) and value in plain:
            return value, 1
        allowed = f"supported: {', '.join(shown)}"
        if isinstance(value, str) and value in chunked:
            raise ValueError(f"{value} needs a number of chunks; write {{{value}: 8}}; {allowed}")
        if not isinstance(value, str):
            raise ValueError(
                f"expected a name or one of the maps, found {kind_of(value)}; {allowed}"
            )
        hint = did_you_mean(value, (*plain, *chunked))
        hint = hint if "did you mean" in hint else ""
        raise ValueError(f"unknown value {shorten(value)}; {allowed}{hint}")

    maps = [
        {
            "type": "object",
            "additionalProperties": False,
            "required": [name],
            "properties": {name: count.schema},
        }
        for name in chunked
    ]
    return Kind(check, schema={"anyOf": [{"enum": list(plain)}, *maps]})


def slices() -> Kind:
    """``true``, ``false``, or into how many slices."""

    def check(value: object) -> bool | int:
        if isinstance(value, bool):
            return value
        if not isinstance(value, int) or value < 1:
            allowed = "expected true, false or a whole number from 1"
            hint = "; write it as true or false, in small letters" if value in _WORDS else ""
            raise ValueError(f"{allowed}, found {kind_of(value)}{hint}")
        return value

    return Kind(check, schema={"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}]})


_WORDS = ("on", "off", "yes", "no", "On", "Off", "Yes", "No", "ON", "OFF", "YES", "NO")


def patterns(names: Iterable[str]) -> Kind:
    """One of ``names``, or a list of patterns of module names."""
    by_name: Any = choice(names)

    def check(value: object) -> object:
        if not isinstance(value, list):
            return by_name.func(value)
        if not value or not all(isinstance(each, str) for each in value):
            raise ValueError("expected a name or a list of module patterns; write none for no list")
        return tuple(value)

    items = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return Kind(check, schema={"anyOf": [by_name.schema, items]})


def listed(kind: Kind) -> Kind:
    """A list, each entry of one kind."""
    inner: Any = kind.func

    def check(value: object) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, found {kind_of(value)}; write [{shorten(value)}]")
        return tuple(inner(each) for each in value)

    return Kind(check, schema={"type": "array", "items": kind.schema})


def operator() -> Kind:
    """An operator whose results can be kept, as ``aten.mm``; ``aten.mm/2`` keeps every second."""
    from simulator.lowering.policy import OPERATORS, parse_save

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected an operator as aten.mm, found {kind_of(value)}")
        try:
            parse_save(value)
        except UserError as error:
            raise ValueError(f"{error}; supported: {', '.join(OPERATORS)}") from None
        return value

    return Kind(check, schema={"type": "string"})


def modules() -> Kind:
    """A list of module names; one name alone is a list of one."""

    def check(value: object) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise ValueError(f"expected a list of names, found {kind_of(value)}")
        return tuple(dict.fromkeys(names))

    one = {"type": "string"}
    return Kind(check, schema={"anyOf": [one, {"type": "array", "items": one}]})


def whose() -> Kind:
    """``measured.of``: max, last, or a rank by number."""

    def check(value: object) -> str | int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000_000:
            return value
        if value == "each":
            raise NotYetError("'each'; supported: max, last, a rank by number")
        if value not in ("max", "last"):
            raise ValueError(f"expected max, last or a rank by number, found {kind_of(value)}")
        return str(value)

    return Kind(
        check, schema={"anyOf": [{"enum": ["max", "last"]}, {"type": "integer", "minimum": 0}]}
    )


def check_date(value: object) -> str:
    """A day as ISO writes it; a month means its first. Raises ValueError."""
    found = re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?", str(value), re.ASCII)
    if not isinstance(value, str) or found is None:
        raise ValueError(f"expected a date as 2025-03 or 2025-03-14, found {kind_of(value)}")
    day = value if found[2] else f"{value}-01"
    try:
        date.fromisoformat(day)
    except ValueError:
        raise ValueError(f"{value} is no day of the calendar") from None
    return day


Date = Annotated[
    str, Kind(check_date, schema={"type": "string", "pattern": r"^20\d\d-\d\d(-\d\d)?$"})
]
"""A day; a month means its first."""


def _version(value: object) -> tuple[int, int]:
    found = re.match(r"v?(\d{1,3})\.(\d{1,3})(\.|$|[a-z+])", str(value), re.ASCII)
    if not isinstance(value, str) or found is None or len(value) > 60:
        raise ValueError(f'expected a version as "2.6", found {kind_of(value)}')
    return int(found[1]), int(found[2])


Version = Annotated[Any, Kind(_version, schema={"type": ["string", "number"]})]
"""Major and minor of a version; a patch release changes no rule."""
