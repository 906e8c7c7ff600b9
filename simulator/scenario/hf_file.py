"""Reading a model's ``config.json`` strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.documents.scalars import shorten
from simulator.errors import UserError
from simulator.model.config import ModelConfig

MAX_BYTES = 2**20


def read_hf_config(path: Path) -> ModelConfig:
    """The model that a config.json describes. Raises UserError, which names the file."""
    from simulator.model.hf_config import from_hf_config

    config = _read(path)
    try:
        return from_hf_config(config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path}: a value is of the wrong kind: {shorten(str(error))}") from None


def _read(path: Path) -> Mapping[str, Any]:
    text = _text(path)
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise UserError(f"{place}: is no JSON: {error.msg.lower()}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deep") from None
    except ValueError as error:
        raise UserError(f"{path}: {shorten(str(error), 200)[1:-1]}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected a map of keys, as a model's config.json")
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error).lower()
        raise UserError(f"cannot read {path}: {reason}") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"{path}: is larger than {MAX_BYTES:,} bytes, which no config.json is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shorten(double)} is given twice")
    return found


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")
