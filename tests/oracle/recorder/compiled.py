"""What torch.compile's partitioner keeps of a block, on fake tensors: no code is generated.

Dynamo and AOTAutograd trace a block forward and backward together; Inductor's decompositions and
its minimum cut split the trace in two. What the first half returns beside its results is kept.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import partitioners
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses import FakeTensorMode

from recorder import checkpointing
from recorder.case import Case
from recorder.fake import kernels
from recorder.models import build

aten = torch.ops.aten
VIEWS = frozenset(
    getattr(aten, name).default
    for name in ("alias", "view", "permute", "t", "_conj", "expand", "unsqueeze", "detach")
) | {aten.transpose.int, aten.slice.Tensor, aten.select.int, aten.squeeze.dim, aten.split.Tensor}


def kept(case: Case) -> list[int]:
    """Bytes of each storage that one block's compiled forward keeps, its weights left out."""
    kernels.choose(case.attn)
    found: list[fx.GraphModule] = []

    def forward(module: fx.GraphModule, _: Any) -> fx.GraphModule:
        found.append(module)
        return module

    backend = aot_autograd(
        fw_compiler=forward,
        partition_fn=_partition,
        decompositions=select_decomp_table(),
    )
    case = replace(case, n_layers=1, master=case.param_dtype or case.master)
    torch._dynamo.reset()
    with FakeTensorMode(allow_non_fake_inputs=True), _without_random_states():
        built = build(case)
        checkpointing.apply(built.blocks, case.ac)
        built.blocks[0].compile(backend=backend, fullgraph=True)
        tokens = torch.zeros(case.mb, case.seq, dtype=torch.long, device="cuda")
        built.loss(built.root, tokens, tokens, lambda _: None)
    (module,) = found
    return _sizes(module, case)


def _partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
    options.pop("compiler", None)
    cut = partitioners.min_cut_rematerialization_partition
    return cut(joint, inputs, compiler="inductor", **options)


def _without_random_states() -> Any:
    """A device that is not there has no generator whose state recompute could restore."""

    def unchanged(_: Any, forward: Any, backward: Any, *__: Any) -> Any:
        return forward, backward

    return mock.patch.object(partitioners, "functionalize_rng_ops", unchanged)


def _sizes(module: fx.GraphModule, case: Case) -> list[int]:
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    _, *rest = output.args[0]
    storages = {_storage(node): None for node in rest if isinstance(node, fx.Node)}
    sizes = []
    for node in storages:
        value = node.meta["val"]
        given = node.op == "placeholder"
        if isinstance(value, torch.Tensor) and (
            not given or value.shape[:2] == (case.mb, case.seq)
        ):
            sizes.append(value.numel() * value.dtype.itemsize)
    return sorted(sizes)


def _storage(node: fx.Node) -> fx.Node:
    while node.target in VIEWS or _is_piece(node):
        node = node.args[0]
    return node


def _is_piece(node: fx.Node) -> bool:
    return node.target is operator.getitem and node.args[0].target in VIEWS
