"""From a file, a name or a mapping to a resolved scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from simulator.errors import UserError
from simulator.scenario.catalogue import BuiltIn, Catalogue
from simulator.scenario.changes import CHANGE, apply_changes, from_python, parse_set
from simulator.scenario.contract import without_later_keys
from simulator.scenario.defaults import complete
from simulator.scenario.fields import check_line
from simulator.scenario.mistakes import Mistakes
from simulator.scenario.node import Map, Node, Origin, Scalar, find, plain, scalar
from simulator.scenario.resolve import resolve, resolve_expect, resolve_measured
from simulator.scenario.scenario import Scenario
from simulator.scenario.short_forms import without_nulls
from simulator.scenario.sources import read_source
from simulator.scenario.validate import validate
from simulator.scenario.yaml_reader import read_yaml

_NULL_HAS_MEANING = frozenset({("training", "clip_grad_norm")})
_MAPPING = "mapping"


def load(
    source: str | Path | Mapping[str, Any],
    sets: Iterable[str] = (),
    *,
    catalogue: Catalogue | None = None,
) -> Scenario:
    """Read, change and resolve a scenario.

    ``source``: a path, a packaged name, ``-`` for stdin, or a mapping. ``sets``: changes as
    ``dotted.key=value``. Raises UserError; all mistakes of one file come in one ScenarioError.
    """
    mistakes = Mistakes()
    tree, name, directory = _read(source, mistakes)
    changes = [parse_set(text, mistakes) for text in sets]
    document = apply_changes(tree, changes)
    return _resolve(document, name, directory, mistakes, catalogue or BuiltIn())


def with_changes(
    scenario: Scenario, changes: Mapping[str, Any], *, catalogue: Catalogue | None = None
) -> Scenario:
    """``scenario`` with other values at some dotted keys, validated like a file.

    What the scenario left out is filled in again: with ``cluster.nodes`` changed, a ``dp_shard``
    that was left out follows. A None leaves a key out. Raises ScenarioError.
    """
    nodes = [(key, from_python(value, CHANGE)) for key, value in changes.items()]
    document = apply_changes(scenario.document, nodes)
    return _resolve(
        document, scenario.source, scenario.directory, Mistakes(), catalogue or BuiltIn()
    )


def _read(
    source: str | Path | Mapping[str, Any], mistakes: Mistakes
) -> tuple[Map, str, Path | None]:
    """The tree, the name that messages give its source, and its folder."""
    if isinstance(source, Mapping):
        tree: Node = from_python(source, Origin(_MAPPING))
        return cast(Map, tree), _MAPPING, None
    if not isinstance(source, str | Path):
        raise UserError(f"a scenario is a path, a name or a mapping, not {type(source).__name__}")
    text = read_source(source)
    tree = read_yaml(text.text, text.source, mistakes)
    if not isinstance(tree, Map):
        mistakes.add(tree.origin, "", "expected a map of keys, as `model: llama-2-7b`")
        mistakes.raise_any()
    return cast(Map, tree), text.source, text.directory


def _resolve(
    document: Map, source: str, directory: Path | None, mistakes: Mistakes, catalogue: Catalogue
) -> Scenario:
    tree = without_nulls(without_later_keys(document, mistakes), _NULL_HAS_MEANING)
    sections = validate(tree, _context(tree, directory, catalogue), mistakes)
    name = _name(tree, source, mistakes)
    parts = resolve(sections, tree, directory, catalogue, mistakes)
    mistakes.raise_any()
    assert parts is not None  # a part that cannot be resolved has left a mistake
    return Scenario(
        name=str(name.value),
        model=parts.model,
        cluster=parts.cluster,
        plan=parts.plan,
        expect=resolve_expect(sections.expect),
        measured=resolve_measured(sections.measured),
        source=source,
        directory=directory,
        document=document,
        complete=complete(tree, name, parts.model, parts.plan.parallelism),
    )


def _context(tree: Map, directory: Path | None, catalogue: Catalogue) -> dict[str, Any]:
    """What validators of names and recipes look things up in."""
    framework = find(tree, ("parallelism", "framework"))
    return {
        "model": catalogue.model,
        "topology": lambda name: catalogue.gpus_per_node(name, directory),
        "gpu": lambda name: catalogue.check_gpu(name, directory),
        "framework": framework.value if isinstance(framework, Scalar) else "",
    }


def _name(tree: Map, source: str, mistakes: Mistakes) -> Scalar:
    """The scenario's name: as written, or the file's."""
    node = tree.items.get("name")
    if node is None:
        return scalar(Path(source).stem, Origin("file name"))
    try:
        return scalar(check_line(plain(node)), node.origin)
    except ValueError as error:
        mistakes.at(tree, ("name",), str(error))
        return scalar("", node.origin)
