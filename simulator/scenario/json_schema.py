"""The JSON Schema (draft 7) of a scenario, for editors, made from the sections themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from simulator.scenario.about import ABOUT
from simulator.scenario.contract import HARMLESS
from simulator.scenario.fields import Kind
from simulator.scenario.schema import SECTIONS, TOP, Section
from simulator.scenario.short_forms import short_optimizers

Schema = dict[str, Any]

FILE = "scenario.schema.json"
"""The name that the first line of the packaged scenarios gives."""

_SHORT: Mapping[str, Schema] = {
    "model": {"type": "string"},
    "training.optimizer": {"enum": list(short_optimizers())},
    "training.activation_checkpointing": {"type": "string"},
}
"""Short forms that a map may be written as."""

_WHAT_IF: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["set"],
        "properties": {
            "name": {"type": ["string", "number"]},
            "set": {"type": "object", "minProperties": 1},
        },
    },
}


def scenario_schema() -> Schema:
    """What a scenario may hold. A null leaves a key out, so it is allowed everywhere."""
    properties: Schema = {key: _told(key, _kind(entry).schema) for key, entry in TOP.items()}
    for name, section in SECTIONS.items():
        properties[name] = _section(section, (name,))
    properties["what_if"] = _told("what_if", _WHAT_IF)
    for key, accepted in HARMLESS.items():
        _add_later(properties, key.split("."), list(accepted))
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A scenario of dryfit",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "anyOf": [{"required": ["extends"]}, _needed()],
    }


def _needed() -> Schema:
    """What must be there, unless a base has it."""
    inner: Schema = {}
    for name, section in SECTIONS.items():
        keys = [key for key, entry in section.model_fields.items() if entry.is_required()]
        if keys:
            inner[name] = {"required": keys}
    return {"required": ["model", *inner], "properties": inner}


def dotted_keys() -> dict[str, Kind | None]:
    """Every key that is honoured, and the kind of its values (None for a map or list)."""
    found: dict[str, Kind | None] = {key: _kind(entry) for key, entry in TOP.items()}
    for name, section in SECTIONS.items():
        found |= dict(_keys_of(section, name))
    return {**found, "what_if": None}


def _keys_of(section: type[Section], path: str) -> Iterator[tuple[str, Kind | None]]:
    yield path, None
    for key, entry in section.model_fields.items():
        here, inner = f"{path}.{key}", _section_of(entry.annotation)
        if inner is not None:
            yield from _keys_of(inner, here)
        else:
            yield here, _field_kind(entry)


def _section(section: type[Section], path: tuple[str, ...]) -> Schema:
    properties: Schema = {}
    for key, entry in section.model_fields.items():
        here, inner = (*path, key), _section_of(entry.annotation)
        if inner is not None:
            properties[key] = _section(inner, here)
            continue
        told = _told(".".join(here), _field_kind(entry).schema)
        if not entry.is_required() and entry.default is not None:
            told["default"] = entry.default
        properties[key] = told
    found: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    name = ".".join(path)
    return _told(name, {"anyOf": [_SHORT[name], found]} if name in _SHORT else found)


def _told(key: str, schema: Mapping[str, Any]) -> Schema:
    """``schema`` that also allows null, with the key's description."""
    found = dict(schema)
    if "anyOf" in found:
        found["anyOf"] = [*found["anyOf"], {"type": "null"}]
    elif "enum" in found:
        found["enum"] = [*found["enum"], None]
    else:
        kind = found["type"]
        found["type"] = [*(kind if isinstance(kind, list) else [kind]), "null"]
    return {"description": ABOUT[key], **found}


def _add_later(properties: Schema, path: list[str], accepted: list[Any]) -> None:
    """A key that is known but not honoured: only what asks for nothing is allowed."""
    key, *rest = path
    if not rest:
        known = {"description": "Not yet supported in this version", "enum": [*accepted, None]}
        properties[key] = known
        return
    empty = {"type": ["object", "null"], "additionalProperties": False, "properties": {}}
    inner = properties.setdefault(key, empty)
    maps = (each for each in inner.get("anyOf", [inner]) if "properties" in each)
    _add_later(next(maps)["properties"], rest, accepted)


def _section_of(annotation: Any) -> type[Section] | None:
    is_section = isinstance(annotation, type) and issubclass(annotation, Section)
    return annotation if is_section else None


def _field_kind(entry: Any) -> Kind:
    """The kind of a field, which stands in its metadata or, with None, in a part of a union."""
    kinds = [each for each in entry.metadata if isinstance(each, Kind)]
    return kinds[0] if kinds else _kind(entry.annotation)


def _kind(annotation: Any) -> Kind:
    metadata = getattr(annotation, "__metadata__", ())
    for each in metadata:
        if isinstance(each, Kind):
            return each
    return next(_kind(part) for part in get_args(annotation) if part is not type(None))
