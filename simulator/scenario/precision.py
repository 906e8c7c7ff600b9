"""Precision by hand: a map of dtypes, and what a framework can do with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.dtypes import SHORT_NAMES, DType
from simulator.errors import did_you_mean
from simulator.plan.plan import FP8, FP8_GATHERED, Precision
from simulator.plan.precision import RECIPES, casts
from simulator.scenario.fields import kind_of
from simulator.scenario.frameworks import rules_of

PATH = ("training", "precision")
DTYPES = ("parameters", "compute", "gradients", "reduce", "master", "moments")
FLAGS = ("autocast", "loss_scaling")
KEYS = (*DTYPES, *FLAGS, "fp8")

BY_HAND = "by hand"
"""The name of dtypes that are no recipe's."""

_STORED = {name: dtype for name, dtype in SHORT_NAMES.items() if dtype is not DType.FP8}
_SHORT = {dtype: name for name, dtype in SHORT_NAMES.items()}

_TE = "Transformer Engine's linears, which keep their weights in float8 as well,"
_BLOCKS = "operands with a scale for each block"
_OTHER_FP8 = {
    **dict.fromkeys(("te", "te-delayed", "te-current", "delayed", "current"), _TE),
    **dict.fromkeys(("mxfp8", "nvfp4", "blockwise"), _BLOCKS),
}
"""Ways to multiply in few bits that are not modelled, and what is said of each."""


def spelled_out(recipe: str) -> dict[str, str | bool]:
    """A recipe as the map that means the same.

    >>> spelled_out("fsdp-mixed")
    {'parameters': 'fp32', 'compute': 'bf16', 'reduce': 'fp32'}
    """
    found = RECIPES[recipe]
    words: dict[str, str | bool] = {
        key: _SHORT[getattr(found, key)] for key in ("parameters", "compute", "reduce")
    }
    return words if found.autocast is None else {**words, "autocast": True}


def resolve_precision(
    value: str | Mapping[str, Any] | None, framework: str, tree: Map, mistakes: Mistakes
) -> Precision | None:
    """The dtypes that a recipe or a map asks for; None, with mistakes, where it cannot be done."""
    if value is None:
        value = rules_of(framework).precision
    if isinstance(value, str):
        return RECIPES[value]
    before = len(mistakes.found)
    asked = _Asked(value, framework, tree, mistakes)
    asked.check_keys()
    if framework == "deepspeed":
        found = asked.of_deepspeed()
        return _named(found) if len(mistakes.found) == before else None
    parameters = asked.dtype("parameters") or DType.FP32
    compute = asked.dtype("compute") or parameters
    asked.same("gradients", parameters, "keeps a gradient in the dtype of its stored parameter")
    asked.same("moments", parameters, "makes AdamW's moments in the dtype of the stored parameter")
    asked.no_master()
    if not casts(framework):
        asked.same("compute", parameters, "casts no parameter but by autocast")
        asked.same("reduce", parameters, "keeps a gradient in the dtype of its parameter")
    found = Precision(
        name=BY_HAND,
        parameters=parameters,
        compute=compute,
        gradients=parameters,
        reduce=asked.dtype("reduce") or parameters,
        master=None,
        moments=parameters,
        autocast=asked.autocast(compute),
        fp8=asked.fp8(),
        loss_scaling=asked.loss_scaling(parameters),
    )
    return _named(found) if len(mistakes.found) == before else None


def _named(found: Precision) -> Precision:
    """The recipe with the same dtypes, where there is one."""
    same = (recipe for recipe in RECIPES.values() if replace(found, name=recipe.name) == recipe)
    return next(same, found)


def check_autocast(
    precision: Precision, adapters: DType | None, tree: Map, mistakes: Mistakes
) -> None:
    """Autocast needs something to cast: parameters, or ``adapters`` of a dtype of their own."""
    if precision.autocast is precision.compute and adapters is None:
        text = f"parameters gathered in {_SHORT[precision.compute]} leave it nothing to cast; "
        text += "leave out either autocast or compute, or have fine_tuning.adapters: fp32"
        mistakes.at(tree, (*PATH, "autocast"), text)


class _Asked:
    """A map of dtypes that is being read."""

    def __init__(
        self, value: Mapping[str, Any], framework: str, tree: Map, mistakes: Mistakes
    ) -> None:
        self.value, self.framework = value, framework
        self.tree, self.mistakes = tree, mistakes

    def wrong(self, key: str, text: str, *, of_key: bool = False) -> None:
        self.mistakes.at(self.tree, (*PATH, key), text, of_key=of_key)

    def check_keys(self) -> None:
        for key in self.value:
            if key not in KEYS:
                self.wrong(key, f"unknown key{did_you_mean(key, KEYS)}", of_key=True)

    def dtype(self, key: str) -> DType | None:
        """The dtype at ``key``; None where it is left out or wrong."""
        found = self.value.get(key)
        if found is None or (isinstance(found, str) and found in _STORED):
            return None if found is None else _STORED[found]
        later = "; linears in float8 are asked for by fp8: tensorwise" if found == "fp8" else ""
        text = f"expected one of {', '.join(_STORED)}, found {kind_of(found)}{later}"
        self.wrong(key, text)
        return None

    def of_deepspeed(self) -> Precision:
        """The module's own dtype, a master copy in fp32 of it, and gradients in either."""
        parameters = self.dtype("parameters") or DType.BF16
        for key in ("compute", "reduce"):
            self.same(key, parameters, "computes and reduces in the dtype of the parameters")
        for key in ("master", "moments"):
            self.same(key, DType.FP32, "steps an fp32 copy of the parameters")
        gradients = self.dtype("gradients") or parameters
        if gradients not in (parameters, DType.FP32):
            self.same("gradients", parameters, "accumulates in that dtype, or in fp32")
        if self._flag("autocast"):
            self.wrong("autocast", "not yet supported under deepspeed; use parameters: bf16")
        if self.value.get("fp8") is not None:
            self.wrong("fp8", "not yet supported under deepspeed; supported: framework: fsdp2")
        scaling = self.value.get("loss_scaling")
        if scaling is not None and self._flag("loss_scaling") is not (parameters is DType.FP16):
            text = "deepspeed scales the loss of fp16 parameters, always, and of no others"
            self.wrong("loss_scaling", f"{text}; leave it out")
        return Precision(
            name=BY_HAND,
            parameters=parameters,
            compute=parameters,
            gradients=gradients,
            reduce=parameters,
            master=None if parameters is DType.FP32 else DType.FP32,
            moments=DType.FP32,
        )

    def same(self, key: str, stored: DType, why: str) -> None:
        found = self.dtype(key)
        if found is not None and found is not stored:
            short = _SHORT[stored]
            self.wrong(key, f"{self.framework} {why}; allowed: {short}, or leave it out")

    def no_master(self) -> None:
        if self.dtype("master") is not None:
            text = f"{self.framework} keeps no master copy beside the stored parameters"
            hint = "; leave it out, and with parameters: fp32 they are the master"
            self.wrong("master", text + hint)

    def autocast(self, compute: DType) -> DType | None:
        """To bf16, where gathered parameters are fp32; in bf16, for adapters that are not."""
        if not self._flag("autocast"):
            return None
        if compute not in (DType.FP32, DType.BF16):
            text = f"parameters gathered in {_SHORT[compute]} leave it nothing to cast; "
            self.wrong("autocast", f"{text}leave out either autocast or compute")
            return None
        return DType.BF16

    def fp8(self) -> str | None:
        """How the blocks' linears multiply in float8; None where they do not."""
        found = self.value.get("fp8")
        if found == FP8_GATHERED and self.framework != "fsdp2":
            self.wrong("fp8", f"{self.framework} gathers nothing in float8; use tensorwise")
        if found is None or (isinstance(found, str) and found in FP8):
            return found
        if isinstance(found, str) and found in _OTHER_FP8:
            text = f"{_OTHER_FP8[found]} are not yet supported; the nearest is tensorwise"
            self.wrong("fp8", text)
            return None
        near = did_you_mean(found, FP8) if isinstance(found, str) else ""
        self.wrong("fp8", f"expected one of {', '.join(FP8)}, found {kind_of(found)}{near}")
        return None

    def loss_scaling(self, parameters: DType) -> bool:
        """GradScaler refuses to unscale gradients in fp16."""
        asked = self._flag("loss_scaling")
        if asked and parameters is DType.FP16:
            text = "GradScaler refuses to unscale fp16 gradients; store parameters: fp32, and "
            self.wrong("loss_scaling", f"{text}compute: fp16")
        return asked

    def _flag(self, key: str) -> bool:
        found = self.value.get(key, False)
        if not isinstance(found, bool):
            self.wrong(key, f"expected true or false, found {kind_of(found)}")
        return found is True
