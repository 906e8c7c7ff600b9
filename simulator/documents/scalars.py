"""What a plain YAML scalar means: the YAML 1.2 rules, without the traps of YAML 1.1.

``on``, ``yes``, ``8:1``, ``0x10``, ``1_000`` and dates stay strings, ``1e9`` is a number, only
``true`` and ``false`` are booleans, and a number with a leading zero is refused.
"""

from __future__ import annotations

import math
import re

from simulator.documents.node import Plain

_WORDS: dict[str, Plain] = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_LONGEST_NUMBER = 40


class ScalarError(ValueError):
    """A plain scalar that is refused because readers disagree on what it means."""


def plain_scalar(text: str) -> Plain:
    """The value of an unquoted scalar. Raises ScalarError.

    >>> [plain_scalar(text) for text in ("1e9", "8:1", "on", "true", "~", "-3")]
    [1000000000.0, '8:1', 'on', True, None, -3]
    """
    if text in _WORDS:
        return _WORDS[text]
    if not _FLOAT.fullmatch(text):
        return text
    if _LEADING_ZERO.match(text):
        raise ScalarError(
            f"{shorten(text)} has a leading zero, which some readers take for octal; "
            "write it without, or quote it if it is a name"
        )
    if len(text) > _LONGEST_NUMBER:
        raise ScalarError(f"{shorten(text)} has more than {_LONGEST_NUMBER} digits")
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ScalarError(f"{shorten(text)} is too large for a number")
    return number


def shorten(value: object, longest: int = 60) -> str:
    """``value`` as Python writes it, cut where it is long; safe to print."""
    shown = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
