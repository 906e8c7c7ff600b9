"""Holding a tree against the schema: typed sections, or mistakes with their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, find, plain
from simulator.errors import did_you_mean
from simulator.scenario.contract import later_keys
from simulator.scenario.fields import ElsewhereError, NotYetError, kind_of
from simulator.scenario.schema import (
    SECTIONS,
    TOP,
    ClusterSection,
    ExpectSection,
    MeasuredSection,
    ModelSection,
    OffloadSection,
    ParallelismSection,
    SoftwareSection,
    TrainingSection,
    section_paths,
)

_OPTIONAL = frozenset({"software", "offload", "expect", "measured"})
_NEEDS = {"model": "preset or hf_config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """The sections of a scenario; None where one is left out or has a mistake."""

    software: SoftwareSection | None
    model: ModelSection | None
    cluster: ClusterSection | None
    parallelism: ParallelismSection | None
    training: TrainingSection | None
    offload: OffloadSection | None
    expect: ExpectSection | None
    measured: MeasuredSection | None


def validate(tree: Map, context: Mapping[str, Any], mistakes: Mistakes) -> Sections:
    """The sections of ``tree`` that are valid; what is wrong joins ``mistakes``."""
    honoured = {*TOP, "what_if", *SECTIONS}
    known = honoured | later_keys(())
    for key in tree.items:
        if key not in known:
            nearest = did_you_mean(key, sorted(known), listed=sorted(honoured))
            mistakes.at(tree, (key,), f"unknown key{nearest}", of_key=True)
    return Sections(**{name: _section(tree, name, context, mistakes) for name in SECTIONS})


def _section(tree: Map, name: str, context: Mapping[str, Any], mistakes: Mistakes) -> Any:
    if name not in tree.items:
        if name not in _OPTIONAL:
            mistakes.add(tree.origin, name, f"is missing; it needs {_required(name)}")
        return None
    try:
        return SECTIONS[name].model_validate(plain(tree.items[name]), context=dict(context))
    except ValidationError as error:
        for each in error.errors(include_url=False):
            _translate(tree, (name, *map(str, each["loc"])), each, mistakes)
        return None


def _required(name: str) -> str:
    fields = SECTIONS[name].model_fields.items()
    return _NEEDS.get(name) or ", ".join(key for key, entry in fields if entry.is_required())


def _translate(tree: Map, path: tuple[str, ...], error: Any, mistakes: Mistakes) -> None:
    """One of pydantic's errors in our words, at its place."""
    reason = error.get("ctx", {}).get("error")
    match error["type"]:
        case "extra_forbidden":
            honoured = section_paths()[path[:-1]].model_fields
            known = sorted({*honoured, *later_keys(path[:-1])})
            nearest = did_you_mean(path[-1], known, listed=sorted(honoured))
            mistakes.at(tree, path, f"unknown key{nearest}", of_key=True)
        case "missing":
            mistakes.at(tree, path, "is missing")
        case "value_error" if isinstance(reason, NotYetError):
            text = f"not yet supported in this version: {'.'.join(path)} = {reason}"
            mistakes.at(tree, path, text)
        case "value_error" if isinstance(reason, ElsewhereError):
            mistakes.extend(reason.mistakes)
        case "value_error":
            mistakes.at(tree, path, str(reason))
        case _:
            node = find(tree, path)
            found = kind_of(plain(node)) if node is not None else "nothing"
            keys = section_paths().get(path)
            allowed = f"a map of {', '.join(keys.model_fields)}" if keys else error["msg"]
            mistakes.at(tree, path, f"expected {allowed}, found {found}")
