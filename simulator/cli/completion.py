"""What the shell offers when the tab key is pressed: names of scenarios, keys and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click
from click.shell_completion import CompletionItem


def complete_scenario(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of packaged scenarios, and files."""
    from simulator.data import data_names

    names = _beginning(data_names("scenarios"), incomplete)
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def complete_shown(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What ``show`` shows: scenarios, and with ``--topology`` topologies."""
    from simulator.data import data_names

    found = complete_scenario(context, parameter, incomplete)
    if not context.params.get("topology"):
        return found
    return [*map(CompletionItem, _beginning(data_names("topologies"), incomplete)), *found]


def complete_set(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """``key=`` for each key of a scenario; ``key=value`` where its values are known by name."""
    from simulator.scenario.about import ABOUT
    from simulator.scenario.json_schema import dotted_keys

    key, equals, value = incomplete.partition("=")
    keys = dotted_keys()
    if not equals:
        leaves = [name for name, kind in keys.items() if kind is not None and name != "extends"]
        found = _beginning(leaves, key)
        return [CompletionItem(f"{name}=", help=ABOUT.get(name)) for name in found]
    kind = keys.get(key)
    if kind is None:
        return []
    values = _named(kind.names) or _words(kind.schema)
    return [CompletionItem(f"{key}={each}") for each in _beginning(values, value)]


def complete_allocator(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Short names, and the options of PyTorch's allocator."""
    from simulator.memory.caching_allocator.settings import OPTIONS
    from simulator.scenario.allocator import AUTO, NAMED, OFF

    words = (AUTO, OFF, *NAMED, *(f"{option}:" for option in OPTIONS))
    return [CompletionItem(word) for word in _beginning(words, incomplete)]


def _beginning(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)]


def _named(catalogue: str) -> tuple[str, ...]:
    """The names of a catalogue."""
    if catalogue == "model":
        from simulator.model.presets import PRESETS

        return tuple(PRESETS)
    if catalogue == "gpu":
        from simulator.hardware.catalogue import gpu_names

        return gpu_names()
    if catalogue == "topology":
        from simulator.data import data_names

        return data_names("topologies")
    return ()


def _words(schema: Mapping[str, object]) -> list[str]:
    """The values that a schema lists."""
    any_of, enum = schema.get("anyOf", ()), schema.get("enum", ())
    found = ["true", "false"] if schema.get("type") == "boolean" else []
    if isinstance(enum, list):
        found += [str(each) for each in enum if each is not None]
    for each in any_of if isinstance(any_of, list) else ():
        found += _words(each)
    return found
