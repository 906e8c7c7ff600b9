"""What of a model is trained: low-rank adapters beside frozen weights, or only some modules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.dtypes import DType

MODULES = ("embed", "layers", "norm", "head")
"""Parts of a model that are trained or frozen as a whole, by the report's names."""

TARGETS: Mapping[str, tuple[str, ...]] = {
    "q": ("wq", "q_proj"),
    "k": ("wk", "k_proj"),
    "v": ("wv", "v_proj"),
    "o": ("wo", "o_proj", "dense", "out_proj"),
    "qkv": ("qkv_proj", "c_attn", "query_key_value", "Wqkv"),
    "gate": ("w1", "gate_proj"),
    "up": ("w3", "up_proj"),
    "down": ("w2", "down_proj"),
    "gate_up": ("gate_up_proj",),
}
"""Short name of a linear -> the last part of its name in the families that have it."""

ALL_LINEAR = "all-linear"
"""Every linear of the blocks, as peft's ``target_modules="all-linear"``: the head is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """LoRA (arXiv:2106.09685): y + B·A·x beside chosen linears, A [rank, in] and B [out, rank].

    ``targets``: short names, names of the model's own, or ``all-linear``. ``dropout``: of A's
    input. ``dtype``: of A and B; None is the base weights'. ``reads``: the
    dtype that their input is cast to, if not that. ``dora``: with a magnitude for
    each output (arXiv:2402.09353).
    """

    rank: int
    targets: tuple[str, ...]
    dropout: float = 0.0
    dtype: DType | None = None
    reads: DType | None = None
    dora: bool = False

    def chooses(self, linear: str, *, in_block: bool = True) -> bool:
        """Whether the linear of that name (``self_attn.q_proj``) gets adapters.

        >>> Adapters(rank=8, targets=("q", "w2")).chooses("attention.wq")
        True
        """
        own = linear.rpartition(".")[2]
        if ALL_LINEAR in self.targets and in_block:
            return True
        return any(own == target or own in TARGETS.get(target, ()) for target in self.targets)


BLOCK = 64
"""Elements of a 4-bit weight that share a scale."""

SCALES = 256
"""Scales that share a scale of their own under double quantisation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nf4:
    """4-bit NormalFloat (QLoRA, arXiv:2305.14314) as bitsandbytes stores it (``quantize_4bit``)."""

    double_quant: bool = True

    def states(self, numel: int) -> tuple[tuple[str, int, DType], ...]:
        """(name, elements, dtype) of what lies beside the packed values of one weight.

        >>> sum(n * d.itemsize for _, n, d in Nf4(double_quant=False).states(4096 * 4096))
        1048640
        """
        blocks, code = numel // BLOCK, ("quant_map", 16, DType.FP32)
        if not self.double_quant:
            return ("absmax", blocks, DType.FP32), code
        return (
            ("absmax", blocks, DType.UINT8),
            code,
            ("offset", 1, DType.FP32),
            ("nested_absmax", -(-blocks // SCALES), DType.FP32),
            ("nested_quant_map", 256, DType.FP32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """Which weights are trained, and how the linears of the blocks are stored (``base``).

    With ``adapters`` all others are frozen but the modules of ``also_train``; without, all are
    trained but the modules of ``freeze``, or the layers: ``layers.7``, ``layers.0-15``.
    ``wide_norms``: norms are fp32 beside 16-bit weights.
    """

    adapters: Adapters | None = None
    base: Nf4 | None = None
    also_train: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    wide_norms: bool = False

    def trains(self, module: str) -> bool:
        """Whether the model's own weights of a module (``layers.*.mlp``) are trained."""
        part = module.partition(".")[0]
        return part in self.also_train if self.adapters else part not in self.freeze

    def freezes_layer(self, layer: int) -> bool:
        """Whether one block alone is frozen.

        >>> [FineTuning(freeze=("layers.0-2", "layers.5")).freezes_layer(n) for n in range(6)]
        [True, True, True, False, False, True]
        """
        return any(layer in layers_of(name) for name in self.freeze)


def layers_of(name: str) -> range:
    """The layers that ``layers.7`` or ``layers.0-15`` names; none for any other name."""
    found = re.fullmatch(r"layers\.(\d+)(?:-(\d+))?", name, re.ASCII)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
