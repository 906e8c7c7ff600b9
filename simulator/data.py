"""Where the packaged data lie: ``scenarios/`` and ``topologies/``."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(kind: str) -> Path:
    """The folder of packaged ``scenarios`` or ``topologies``.

    Inside the package where it was installed from a wheel, else at the root of the checkout.
    """
    packaged = _PACKAGE / "_data" / kind
    return packaged if packaged.is_dir() else _PACKAGE.parent / kind


def data_names(kind: str) -> tuple[str, ...]:
    """Names of the packaged YAML files of one kind, without their suffix, sorted.

    >>> "llama2-7b-fsdp2-8xa100" in data_names("scenarios")
    True
    """
    return tuple(sorted(path.stem for path in data_dir(kind).glob("*.yaml")))
