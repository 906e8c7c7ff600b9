"""Cases by name, by pattern, and changed on the command line."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import fields, replace
from fnmatch import fnmatch
from typing import Any

from recorder.case import Case
from recorder.cases import CASES


class MistakeError(Exception):
    """The command line asks for what is not there."""


def matching(patterns: list[str]) -> dict[str, Case]:
    """The cases whose names match; ``*`` and ``?`` stand for letters.

    Raises:
        MistakeError: a pattern that matches none.
    """
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in CASES):
            raise MistakeError(f"no case {pattern!r}: `list` shows them")
    return {
        name: case
        for name, case in CASES.items()
        if any(fnmatch(name, pattern) for pattern in patterns)
    }


def changed(name: str, changes: Iterable[str]) -> Case:
    """A case by name (- for the usual one), with ``KEY=VALUE`` changes.

    Raises:
        MistakeError: no such case or key.
    """
    if name not in {"-", *CASES}:
        raise MistakeError(f"no case {name!r}: `list` shows them")
    case = CASES.get(name, Case())
    return replace(case, **dict(_change(text) for text in changes))


def _change(text: str) -> tuple[str, Any]:
    """``ws=16`` -> ("ws", 16); what is no Python literal is a word."""
    key, equals, value = text.partition("=")
    names = [field.name for field in fields(Case)]
    if not equals or key not in names:
        raise MistakeError(f"{text!r} is not KEY=VALUE with a key of {', '.join(names)}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value
