"""Kinds of values that are particular to one key or family of keys of a scenario."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from simulator.errors import UserError
from simulator.plan.precision import RECIPES, bytes_per_parameter, nearest, runs_under
from simulator.scenario.bounds import Bound, parse_number
from simulator.scenario.fields import (
    FLAG,
    LINE,
    NotYetError,
    bound,
    choice,
    kind_of,
    number,
    quantity,
)
from simulator.scenario.scalars import shorten
from simulator.units import parse_bytes, parse_time

Name = Annotated[str, LINE]
Flag = Annotated[bool, FLAG]
Size = Annotated[int, quantity(parse_bytes)]
Seconds = Annotated[float, quantity(parse_time)]
SizeBound = Annotated[Bound, bound(parse_bytes)]
TimeBound = Annotated[Bound, bound(parse_time)]
NumberBound = Annotated[Bound, bound(parse_number)]
Rate = Annotated[float, number(0, 1e12, above=True)]

_PRECISIONS = ("fsdp-mixed", "pure-bf16")


def catalogued(kind: str) -> BeforeValidator:
    """A name that the catalogue of the validation's context knows under ``kind``."""

    def check(value: object, info: ValidationInfo) -> str:
        if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
            raise ValueError(f"expected the name of a {kind}, found {kind_of(value)}")
        try:
            (info.context or {})[kind](value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    return BeforeValidator(check)


def check_precision(value: object, info: ValidationInfo) -> str:
    """A recipe that the framework can run and this version carries out."""
    if isinstance(value, dict):
        raise NotYetError(f"a map of dtypes; supported: {', '.join(_PRECISIONS)}")
    framework = str((info.context or {})["framework"])
    if isinstance(value, str) and value in RECIPES and not runs_under(value, framework):
        other = nearest(value, framework)
        raise ValueError(
            f"{framework} cannot run {value!r} ({bytes_per_parameter(RECIPES[value])} B/param); "
            f"the nearest that it can is {other!r} ({bytes_per_parameter(RECIPES[other])} B/param)"
        )
    return str(_PRECISION_NAME(value))


_LATER = tuple(name for name in RECIPES if name not in _PRECISIONS)
_PRECISION_NAME: Any = choice(_PRECISIONS, _LATER).func


def check_seq_len(value: object) -> object:
    """Anything but a distribution, which is for later; what it may be is checked after."""
    if isinstance(value, dict):
        raise NotYetError("a distribution of lengths; supported: one whole number")
    return value


def refuse_map(value: object) -> object:
    """Anything but a map, such as ``{chunked: 8}``, which is for later."""
    if isinstance(value, dict):
        shown = shorten(", ".join(f"{key}: {item}" for key, item in value.items()))[1:-1]
        raise NotYetError(f"{{{shown}}}")
    return value


def check_whose(value: object) -> str | int:
    """``measured.of``: max, last, or a rank by number."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000_000:
        return value
    if value == "each":
        raise NotYetError("'each'; supported: max, last, a rank by number")
    if value not in ("max", "last"):
        raise ValueError(f"expected max, last or a rank by number, found {kind_of(value)}")
    return str(value)
