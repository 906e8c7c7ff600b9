"""Where recordings are kept: one JSON a case while they are new, then the tests' data.

``FRESH`` holds what ``record`` wrote; ``merge`` takes it into ``tests/data`` and touches only the
cases that are new or changed; a recording whose case is gone goes too.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from recorder.case import Case

Run = dict[str, Any]

ROOT = Path(__file__).parents[3]
FRESH = ROOT / "out" / "oracle"
DATA = ROOT / "tests" / "data"
HUGGING_FACE = "hf:"


class Change(Enum):
    """How a recording differs from the one that the tests have."""

    NEW = "new"
    CHANGED = "CHANGED"
    SAME = "same"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Shelf:
    """A file of ``tests/data``; ``inner`` is the key that its runs lie under, if any."""

    path: Path
    inner: str | None = None

    def read(self) -> dict[str, Any]:
        """The whole file; an empty one where there is none."""
        if not self.path.is_file():
            return {self.inner: {}} if self.inner else {}
        return json.loads(gzip.decompress(self.path.read_bytes()))

    def runs(self, content: dict[str, Any]) -> dict[str, Run]:
        """The runs of the file's content, by name."""
        return content if self.inner is None else content[self.inner]

    def write(self, content: dict[str, Any]) -> None:
        """Write so that equal content makes equal bytes."""
        text = json.dumps(content, separators=(",", ":"))
        self.path.write_bytes(gzip.compress(text.encode(), mtime=0))


def shelf_of(case: Case) -> Shelf:
    """The file that a case's recording belongs in."""
    if case.framework != "fsdp2":
        return Shelf(DATA / "framework_runs.json.gz")
    if case.fp8:
        return Shelf(DATA / "float8_runs.json.gz")
    if case.lora or case.freeze:
        return Shelf(DATA / "fine_tuning_runs.json.gz")
    if case.loss != "eager":
        return Shelf(DATA / "recorded_losses.json.gz")
    if case.model.startswith(HUGGING_FACE) and case.autocast:
        return Shelf(DATA / "recorded_hf_autocast.json.gz", "runs")
    if case.model.startswith(HUGGING_FACE):
        return Shelf(DATA / "recorded_hf_fsdp2.json.gz", "runs")
    return Shelf(DATA / "fsdp2_runs.json.gz")


@cache
def known(shelf: Shelf) -> dict[str, Run]:
    """The runs that the tests have."""
    return shelf.runs(shelf.read())


def change(name: str, case: Case, run: Run) -> Change:
    """What merging the run would change."""
    before = known(shelf_of(case)).get(name)
    if before is None:
        return Change.NEW
    return Change.SAME if _essence(before) == _essence(run) else Change.CHANGED


def keep_fresh(name: str, case: Case, run: Run) -> None:
    """Lay a recording by for ``merge``."""
    if case.model.startswith(HUGGING_FACE):
        model = case.model.removeprefix(HUGGING_FACE)
        run = {**run, "config": {**run["config"], "model": model}}
    FRESH.mkdir(parents=True, exist_ok=True)
    (FRESH / f"{name}.json").write_text(json.dumps(run))


def keep_compiled(found: dict[str, Any]) -> None:
    """What torch.compile keeps of blocks, by case, into the tests' data."""
    text = json.dumps(found, separators=(",", ":"), default=str)
    (DATA / "recorded_compile.json").write_text(text + "\n")


def merge(cases: dict[str, Case]) -> dict[str, Change]:
    """Take what is fresh into the tests' data; the changes by case."""
    changes: dict[str, Change] = {}
    touched: dict[Shelf, dict[str, Any]] = {}
    for shelf in {shelf_of(case) for case in cases.values()}:
        content = shelf.read()
        here = {name for name, case in cases.items() if shelf_of(case) == shelf}
        for name in sorted(shelf.runs(content).keys() - here):
            del shelf.runs(content)[name]
            changes[name], touched[shelf] = Change.GONE, content
    for name, case in cases.items():
        path = FRESH / f"{name}.json"
        if not path.is_file():
            continue
        run: Run = json.loads(path.read_text())
        changes[name] = change(name, case, run)
        if changes[name] is not Change.SAME:
            shelf = shelf_of(case)
            content = touched.setdefault(shelf, shelf.read())
            shelf.runs(content)[name] = run
    for shelf, content in touched.items():
        shelf.write(content)
    return changes


def _essence(run: Run) -> Any:
    """What a test can see: marks, and peaks but for the operator's name."""
    marks = [tuple(mark) for mark in run["marks"]]
    peaks = {
        phase: {key: value for key, value in peak.items() if key != "op"}
        for phase, peak in run["peaks"].items()
    }
    return marks, peaks
