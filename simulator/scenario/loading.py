"""From a file, a name or a mapping to a resolved scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Origin, Scalar, plain, scalar
from simulator.errors import ScenarioError
from simulator.scenario.allocator import resolve_allocator
from simulator.scenario.catalogue import BuiltIn, Catalogue
from simulator.scenario.changes import CHANGE, apply_changes, from_python, parse_set
from simulator.scenario.contract import without_later_keys
from simulator.scenario.defaults import complete
from simulator.scenario.effects import warnings_of
from simulator.scenario.extends import ReadFile, read_extended
from simulator.scenario.fields import check_line
from simulator.scenario.frameworks import framework_in
from simulator.scenario.resolve import (
    resolve,
    resolve_expect,
    resolve_measured,
    resolve_software,
)
from simulator.scenario.scenario import Scenario
from simulator.scenario.schema import TOP, SoftwareSection
from simulator.scenario.short_forms import as_text, without_nulls
from simulator.scenario.validate import validate
from simulator.scenario.what_if import changed_documents, resolve_what_if

_NULL_HAS_MEANING = frozenset({("training", "clip_grad_norm")})
_TEXTS = (("as_of",), *(("software", key) for key in SoftwareSection.model_fields))


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
    mistakes, known = Mistakes(), catalogue or BuiltIn()
    file = read_extended(source, mistakes)
    changes = [parse_set(text, mistakes) for text in sets]
    document = apply_changes(file.tree, changes)
    try:
        scenario = resolve_document(document, file.source, file.directory, mistakes, known)
    except ScenarioError as error:
        alone = [each for each in error.mistakes if file.whole or each.text[:10] != "is missing"]
        again = Mistakes()
        again.extend(alone)
        if not changes:
            _judge_what_if(document, file, known, again)
        raise again.error() from None
    if not changes:
        _judge_what_if(document, file, known, mistakes)
        mistakes.raise_any()
    return scenario


def _judge_what_if(document: Map, file: ReadFile, catalogue: Catalogue, mistakes: Mistakes) -> None:
    """What the entries of ``what_if:`` lead to; what is amiss without them is told already."""
    told = {str(each) for each in mistakes.found}
    for key, changed in changed_documents(document, mistakes):
        try:
            resolve_document(changed, file.source, file.directory, Mistakes(), catalogue)
        except ScenarioError as error:
            for each in error.mistakes:
                if str(each) not in told and (file.whole or each.text[:10] != "is missing"):
                    place = Origin(each.source, each.line, each.column)
                    mistakes.add(place, f"{key}: {each.key}", each.text)


def with_changes(
    scenario: Scenario, changes: Mapping[str, Any], *, catalogue: Catalogue | None = None
) -> Scenario:
    """``scenario`` with other values at some dotted keys, validated like a file.

    What the scenario left out is filled in again: with ``cluster.nodes`` changed, a ``dp_shard``
    that was left out follows. A None leaves a key out. Raises ScenarioError.
    """
    nodes = [(key, from_python(value, CHANGE)) for key, value in changes.items()]
    document = apply_changes(scenario.document, nodes)
    return resolve_document(
        document, scenario.source, scenario.directory, Mistakes(), catalogue or BuiltIn()
    )


def resolve_document(
    document: Map, source: str, directory: Path | None, mistakes: Mistakes, catalogue: Catalogue
) -> Scenario:
    """The scenario of a tree whose changes are made. Raises ScenarioError."""
    tree = without_nulls(without_later_keys(document, mistakes), _NULL_HAS_MEANING)
    tree = as_text(tree, _TEXTS)
    if "extends" in tree.items:
        mistakes.at(tree, ("extends",), "belongs in a file, and no change reaches it", of_key=True)
    sections = validate(tree, _context(tree, directory, catalogue), mistakes)
    name = _name(tree, source, mistakes)
    as_of = _checked(tree, "as_of", mistakes)
    software = resolve_software(sections.software, as_of, tree, mistakes)
    parts = resolve(sections, software, tree, directory, catalogue, mistakes)
    what_if = resolve_what_if(tree, mistakes)
    allocator = resolve_allocator(
        _checked(tree, "allocator", mistakes), _checked(tree, "launcher", mistakes), software
    )
    mistakes.raise_any()
    assert parts is not None  # a part that cannot be resolved has left a mistake
    return Scenario(
        name=str(name.value),
        model=parts.model,
        cluster=parts.cluster,
        plan=parts.plan,
        expect=resolve_expect(sections.expect),
        measured=resolve_measured(sections.measured),
        software=software,
        allocator=allocator,
        what_if=what_if,
        warnings=warnings_of(tree, parts.model, parts.plan, software),
        source=source,
        directory=directory,
        document=document,
        complete=complete(tree, name, parts.derived),
    )


def _context(tree: Map, directory: Path | None, catalogue: Catalogue) -> dict[str, Any]:
    """What validators of names and recipes look things up in."""
    return {
        "model": catalogue.model,
        "topology": lambda name: catalogue.gpus_per_node(name, directory),
        "gpu": lambda name: catalogue.check_gpu(name, directory),
        "framework": framework_in(tree),
    }


def _checked(tree: Map, key: str, mistakes: Mistakes) -> str | None:
    """What stands beside the sections under ``key``; None where it is left out or wrong."""
    node = tree.items.get(key)
    if node is None:
        return None
    (kind,) = TOP[key].__metadata__
    try:
        found: str = kind.func(plain(node))
    except ValueError as error:
        mistakes.at(tree, (key,), str(error))
        return None
    return found


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
