"""Quantities with their units: read from text, written back as text.

A dimension needs its unit. Sizes are ``int`` bytes; rates, times and powers are ``float``. Letters
are case-sensitive: ``B`` is a byte and ``bit`` a bit, ``GB`` is 10^9 bytes and ``GiB`` 2^30.
"""

from __future__ import annotations

import difflib
import re
from decimal import Decimal

from simulator.errors import UnitError

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


def _prefixed(unit: str, *, scale: Decimal = Decimal(1)) -> dict[str, Decimal]:
    return {f"{prefix}{unit}": scale * 10**power for prefix, power in _DECIMAL.items()}


def _binary(unit: str) -> dict[str, Decimal]:
    return {f"{prefix}{unit}": Decimal(2**power) for prefix, power in _BINARY.items()}


_SIZES = _prefixed("B") | _binary("B")
_RATES = _prefixed("B/s") | _binary("B/s") | _prefixed("bit/s", scale=Decimal("0.125"))
_FLOPS = _prefixed("FLOP/s")
_TIMES = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_POWERS = {unit: scale for unit, scale in _prefixed("W").items() if unit in ("W", "kW", "MW")}

_NUMBER = re.compile(r"([+-]?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d+)?)\s*(.*)", re.ASCII)
_LARGEST = Decimal(10) ** 24
_MOST_EXPONENT = 40
_LARGEST_SIZE = 2**63 - 1


def parse_bytes(text: str) -> int:
    """A size in bytes: ``80 GiB``, ``25 MB``, ``512 B``; parts of a byte are rounded.

    Raises UnitError without a unit, with one that is no size, or out of range.

    >>> parse_bytes("80 GiB"), parse_bytes("80 GB")
    (85899345920, 80000000000)
    """
    size = round(_parse(text, "size", _SIZES, "80 GiB"))
    if size > _LARGEST_SIZE:
        raise UnitError(
            f"{_shown(text)} is out of range: too large for a size; the limit is 2^63 - 1 bytes"
        )
    return size


def parse_rate(text: str) -> float:
    """A data rate in bytes per second: ``3.35 TB/s``, ``400 Gbit/s``. Raises UnitError.

    >>> parse_rate("400 Gbit/s")
    50000000000.0
    """
    return float(_parse(text, "data rate", _RATES, "400 Gbit/s"))


def parse_flops(text: str) -> float:
    """A compute rate in floating-point operations per second: ``989 TFLOP/s``. Raises UnitError."""
    return float(_parse(text, "compute rate", _FLOPS, "989 TFLOP/s"))


def parse_time(text: str) -> float:
    """A time in seconds: ``2 us``, ``3.1 s``, ``5 min``. Raises UnitError."""
    return float(_parse(text, "time", _TIMES, "2.9 s"))


def parse_power(text: str) -> float:
    """A power in watts: ``700 W``. Raises UnitError."""
    return float(_parse(text, "power", _POWERS, "700 W"))


def format_bytes(size: int, unit: str = "GiB", decimals: int | None = 2) -> str:
    """``size`` bytes in ``unit``; ``decimals=None`` takes the unit in which it is exact.

    >>> format_bytes(85899345920), format_bytes(80_000_000_000, decimals=None)
    ('80.00 GiB', '80 GB')
    """
    if decimals is not None:
        return f"{Decimal(size) / _SIZES[unit]:.{decimals}f} {unit}"
    exact = [name for name, scale in _SIZES.items() if size and size % int(scale) == 0]
    best = max(exact, key=lambda name: _SIZES[name], default="B")
    return f"{size // int(_SIZES[best])} {best}"


def format_time(seconds: float, digits: int = 3) -> str:
    """``seconds`` in the unit that keeps the number small, to ``digits`` significant digits.

    >>> format_time(0.0314159), format_time(2.92), format_time(7200)
    ('31.4 ms', '2.92 s', '2 h')
    """
    units = {"d": 2 * 86400.0, "h": 7200.0, "min": 120.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
    return _format(seconds, digits, units, "ns", _TIMES)


def format_rate(bytes_per_s: float, digits: int = 4, unit: str = "B/s") -> str:
    """A data rate in decimal multiples of ``unit`` (``B/s`` or ``bit/s``).

    >>> format_rate(3.35e12), format_rate(5e10, unit="bit/s")
    ('3.35 TB/s', '400 Gbit/s')
    """
    units = {f"{p}{unit}": float(_RATES[f"{p}{unit}"]) for p in reversed(_DECIMAL) if p}
    return _format(bytes_per_s, digits, units, unit, _RATES)


def format_flops(flop_per_s: float, digits: int = 4) -> str:
    """A compute rate: ``989 TFLOP/s``."""
    units = {f"{p}FLOP/s": 10.0 ** _DECIMAL[p] for p in reversed(_DECIMAL) if p}
    return _format(flop_per_s, digits, units, "FLOP/s", _FLOPS)


def _format(
    value: float, digits: int, from_: dict[str, float], smallest: str, scales: dict[str, Decimal]
) -> str:
    """Write ``value`` in the first unit of ``from_`` whose threshold its rounding reaches."""
    rounded = float(f"{value:.{digits - 1}e}")
    unit = next((name for name, least in from_.items() if rounded >= least), smallest)
    scaled = Decimal(repr(float(value))) / scales[unit]
    number = Decimal(f"{scaled:.{digits - 1}e}")
    return f"{number.normalize():f} {unit}"


def _parse(text: str, what: str, units: dict[str, Decimal], example: str) -> Decimal:
    found = _NUMBER.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise UnitError(f"{_shown(text)} is no {what}; write a number and a unit, as {example}")
    number, unit = found.groups()
    if unit not in units:
        raise UnitError(f"{_shown(text)} is no {what}{_hint(unit, what, units, example)}")
    exponent = re.search(r"[eE]([+-]?)0*(\d*)$", number)
    if exponent is not None and (len(exponent[2]) > 2 or int(exponent[2] or 0) > _MOST_EXPONENT):
        size = "small" if exponent[1] == "-" else "large"
        raise UnitError(f"{_shown(text)} is out of range: too {size} for a {what}")
    value = Decimal(number) * units[unit]
    if value < 0:
        raise UnitError(f"{_shown(text)} is negative; a {what} is 0 or more")
    if value > _LARGEST:
        raise UnitError(f"{_shown(text)} is out of range: too large for a {what}")
    return value


def _hint(unit: str, what: str, units: dict[str, Decimal], example: str) -> str:
    """Why ``unit`` is refused, and what was probably meant."""
    if not unit:
        return f": the unit is missing; write it as {example}"
    if what == "size" and f"{unit}B" in units and f"{unit}iB" in units:
        return f": {unit!r} is ambiguous; write {unit}B (decimal) or {unit}iB (binary)"
    if what == "data rate" and re.fullmatch(r"[kKMGTPE]?bp?s?(/s)?", unit):
        prefix = unit[0] if unit[0] != "b" else ""
        return f": {unit!r} is ambiguous; write {prefix}bit/s (bits) or {prefix}B/s (bytes)"
    folded = {name.lower(): name for name in units}
    near = folded.get(unit.lower()) or next(
        iter(difflib.get_close_matches(unit, units, n=1, cutoff=0.5)), None
    )
    hint = f"; did you mean {near}?" if near else ""
    return f": unknown unit {_shown(unit)}; allowed: {', '.join(units)}{hint}"


def _shown(text: object) -> str:
    """``text`` quoted, cut short where it is long."""
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
