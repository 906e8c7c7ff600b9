"""Models by name: ``titan:NAME`` in torchtitan's style, ``hf:NAME`` of transformers' classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from recorder.case import Case
from recorder.models.built import DTYPES, Built, building, masked

__all__ = ["DTYPES", "Built", "build", "masked"]

T = TypeVar("T")


def build(case: Case) -> Built:
    """The case's model, stored in its master dtype, with what it trains.

    Raises:
        ValueError: a model that neither library has here.
    """
    built = _whole(case)
    if case.fp8:
        from recorder.models.float8 import convert

        convert(built, case)
    if case.lora or case.freeze:
        from recorder.models.lora import fine_tune

        fine_tune(built, case)
    return built


def _whole(case: Case) -> Built:
    library, _, name = case.model.partition(":")
    dtype = DTYPES[case.master]
    if library == "titan":
        from recorder.models.titan import titan
        from recorder.models.titan_sizes import SIZES

        with building(dtype):
            return titan(_known(name, SIZES), case)
    if library == "hf":
        from recorder.models.hugging_face import CONFIGS, hugging_face

        with building(dtype):
            return hugging_face(_known(name, CONFIGS), case)
    raise ValueError(f"{case.model!r}: a model is titan:NAME or hf:NAME")


def _known(name: str, table: Mapping[str, T]) -> T:
    if name not in table:
        raise ValueError(f"no model {name!r}; there are {', '.join(sorted(table))}")
    return table[name]
