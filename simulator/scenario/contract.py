"""Keys of the contract that this version knows but does not honour.

A key whose value is the harmless one (it asks for nothing) is accepted; any other value is refused
by name, so that no setting is silently without effect.
"""

from __future__ import annotations

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map, Node, Plain, Scalar
from simulator.documents.scalars import shorten
from simulator.errors import did_you_mean
from simulator.scenario.schema import section_paths

Path = tuple[str, ...]

HARMLESS: dict[str, tuple[Plain, ...]] = {
    "cluster.power_cap": (),
    "cluster.host_memory": (),
    "cluster.placement": ("torchtitan",),
    "parallelism.tp": (1,),
    "parallelism.cp": (1,),
    "parallelism.pp": (1,),
    "parallelism.ep": (1,),
    "parallelism.etp": (1,),
    "parallelism.tensor.sequence_parallel": (True,),
    "parallelism.tensor.async": (False,),
    "parallelism.tensor.loss_parallel": (True,),
    "parallelism.context.kind": ("ring",),
    "parallelism.context.balanced": (True,),
    "parallelism.pipeline.schedule": ("1f1b",),
    "parallelism.pipeline.virtual_stages": (1,),
    "parallelism.pipeline.layers_per_stage": (),
    "parallelism.experts.routing": ("balanced",),
    "parallelism.experts.dispatch": ("all-to-all",),
    "parallelism.experts.capacity_factor": (),
    "parallelism.ddp.static_graph": (False,),
    "parallelism.zero.allgather_partitions": (True,),
    "parallelism.zero.ignore_unused_parameters": (True, False),
    "parallelism.zero.mics_shard_size": (-1,),
    "parallelism.zero.offload_optimizer": (),
    "parallelism.zero.offload_param": (),
    "parallelism.zero.parameter_alignment": (False,),
    "parallelism.zero.stage3_gather_16bit_weights_on_model_save": (True, False),
    "parallelism.zero.stage3_module_granularity_threshold": (0,),
    "parallelism.zero.stage3_use_all_reduce_for_fetch_params": (False,),
    "parallelism.zero.use_multi_rank_bucket_allreduce": (True,),
    "parallelism.zero.zero_hpz_partition_size": (1,),
    "parallelism.zero.zero_quantized_gradients": (False,),
    "parallelism.zero.zero_quantized_nontrainable_weights": (False,),
    "parallelism.zero.zero_quantized_weights": (False,),
    "parallelism.megatron": (),
    "offload.activations": ("none",),
    "offload.pin": (True,),
    "job": (),
    "timing": (),
    "sweep": (),
    "sizing": (),
}
"""By dotted key: the values, beside null, that ask for nothing."""

_KEYS: frozenset[Path] = frozenset(tuple(key.split(".")) for key in HARMLESS)
_MAPS: frozenset[Path] = frozenset(
    path[:depth] for path in _KEYS for depth in range(1, len(path))
) - frozenset(section_paths())
"""Maps that hold nothing but such keys."""


def later_keys(path: Path) -> frozenset[str]:
    """Keys of the map at ``path`` that are known though not honoured."""
    return frozenset(key[len(path)] for key in _KEYS if key[: len(path)] == path != key)


def without_later_keys(node: Map, mistakes: Mistakes, path: Path = ()) -> Map:
    """``node`` without the keys known for later; what they ask for joins ``mistakes``."""
    kept: dict[str, Node] = {}
    for key, item in node.items.items():
        here = (*path, key)
        if here in _KEYS:
            _refuse_unless_harmless(node, item, here, mistakes)
        elif here in _MAPS:
            _empty_out(node, item, here, mistakes)
        elif isinstance(item, Map) and here in section_paths():
            kept[key] = without_later_keys(item, mistakes, here)
        else:
            kept[key] = item
    return Map(kept, node.origin, node.keys)


def _refuse_unless_harmless(parent: Map, node: Node, path: Path, mistakes: Mistakes) -> None:
    key = ".".join(path)
    accepted = HARMLESS[key]
    if isinstance(node, Scalar) and any(_same(node.value, each) for each in (None, *accepted)):
        return
    found = f" = {_shown(node.text)}" if isinstance(node, Scalar) else ""
    words = ", ".join(str(each).lower() for each in accepted)
    allowed = f"allowed: {words}, or leave it out" if accepted else "leave it out"
    text = f"not yet supported in this version: {key}{found}; {allowed}"
    mistakes.add(parent.keys.get(path[-1], node.origin), key, text)


def _same(left: Plain, right: Plain) -> bool:
    """Equality in which ``true`` is no 1."""
    return left == right and isinstance(left, bool) is isinstance(right, bool)


def _shown(text: str) -> str:
    return text if text.isprintable() and len(text) <= 60 else shorten(text)


def _empty_out(parent: Map, node: Node, path: Path, mistakes: Mistakes) -> None:
    """Judge a map that holds only keys for later; nothing of it is kept."""
    known = sorted(later_keys(path))
    if isinstance(node, Map):
        for name in without_later_keys(node, mistakes, path).items:
            text = f"unknown key{did_you_mean(name, known)}"
            mistakes.add(node.keys.get(name, node.origin), ".".join((*path, name)), text)
    elif not isinstance(node, Scalar) or node.value is not None:
        text = f"not yet supported in this version; expected a map of {', '.join(known)}"
        mistakes.add(parent.keys.get(path[-1], node.origin), ".".join(path), text)
