"""Data files in YAML, read strictly: one map a file, plain values, no key twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import UserError

MAX_BYTES = 1 << 20

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """The safe loader, which also refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first_line: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in first_line:
                where = f"lines {first_line[key.value]} and {line}"
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is given twice, in {where}"
                )
            first_line[key.value] = line
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The map in the file ``path``.

    Raises UserError, naming the file, where it can't be read, is larger than 1 MiB, is no YAML,
    holds anything but one map, or gives a key twice.
    """
    try:
        found = yaml.load(_text(path), Loader=_StrictLoader)  # a safe loader, see above
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: is no YAML that dryfit reads: {_why(error)}") from None
    if not isinstance(found, dict):
        kind = "is empty" if found is None else f"holds a {type(found).__name__}"
        raise UserError(f"{path}: {kind}; it must be a map of keys to values")
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"{path}: is larger than {MAX_BYTES >> 20} MiB, which no data file is")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None


def _why(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        return place + ", ".join(part for part in (error.context, error.problem) if part)
    return " ".join(str(error).split()) or type(error).__name__
