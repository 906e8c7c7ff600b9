"""Selective policies: whose results a checkpoint keeps, and which parts it is put around.

``save`` lists operators as ``create_selective_checkpoint_contexts`` takes them
(torch/utils/checkpoint.py): each one's results are MUST_SAVE. ``NAME/N`` keeps every N-th result
of that operator, the first included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from simulator.errors import UnknownNameError
from simulator.model.graph import Graph

OPERATORS: Mapping[str, str] = {
    "aten.mm": "mm",
    "aten.max": "max",
    "aten.addmm": "addmm",
    "aten.bmm": "bmm",
    "aten._grouped_mm": "grouped_mm",
    "aten._scaled_dot_product_flash_attention": "flash_attention",
    "aten._scaled_dot_product_efficient_attention": "efficient_attention",
    "aten._fused_rms_norm": "rms_norm",
    "aten.native_layer_norm": "layer_norm",
    "aten.silu": "silu",
    "aten.gelu": "gelu",
    "aten._softmax": "softmax",
    "aten.native_dropout": "dropout",
}
"""torch's name of an operator -> the kind of op that calls it once."""

TORCHTITAN = (
    "aten.mm/2",
    "aten.max",
    "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention",
)
"""torchtitan's policy, as far as a block runs it: attention and the largest magnitude behind a
float8 scale (``_op_sac_save_list``, which also names collectives), and of matrix products (``mm``)
every other one."""

CORE_ATTENTION = ("core_attn",)
"""Korthikanti et al. (arXiv:2205.05198), section 5: scores, softmax, dropout and context."""

MODULES = ("core_attn", "mlp", "layernorm")
"""Parts by the names of Megatron-Core's ``--recompute-modules``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One entry of ``save``: the op kind, and of how many of its calls one is kept."""

    name: str
    kind: str
    every: int


def parse_save(entry: str) -> Save:
    """``aten.mm``, ``torch.ops.aten.mm.default``, ``aten.mm/2``.

    Raises:
        UnknownNameError: an operator that is not known, or no whole number from 1 after the slash.
    """
    name, slash, every = entry.partition("/")
    name = name.removeprefix("torch.ops.").removesuffix(".default")
    if name not in OPERATORS:
        raise UnknownNameError("operator", name, OPERATORS)
    if slash and not (every.isascii() and every.isdigit() and int(every)):
        raise UnknownNameError("operator", entry, [f"{name}/2"])
    return Save(name=name, kind=OPERATORS[name], every=int(every or 1))


def cached_ops(graph: Graph, save: Sequence[str]) -> frozenset[int]:
    """Numbers of the ops whose results the policy keeps."""
    return frozenset(index for entry in save for index in _calls(graph, parse_save(entry)))


def _calls(graph: Graph, save: Save) -> Iterator[int]:
    calls = [index for index, op in enumerate(graph.ops) if op.kind == save.kind]
    yield from calls[:: save.every]
