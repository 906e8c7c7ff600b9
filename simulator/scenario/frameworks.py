"""What a scenario may ask of each framework: axes of its mesh, defaults, keys that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.documents.node import Map, Scalar, find

FSDP = "parallelism.fsdp"
ZERO = "parallelism.zero"

SETTINGS: Mapping[str, object] = {
    f"{FSDP}.wrap": None,
    f"{FSDP}.reshard_after_forward": True,
    f"{FSDP}.reshard_last_block": None,
    f"{FSDP}.reshard_after_backward": True,
    f"{FSDP}.sync_every_micro_batch": True,
    f"{FSDP}.forward_prefetch": 0,
    f"{FSDP}.backward_prefetch": "pre",
    f"{FSDP}.limit_all_gathers": True,
    f"{FSDP}.use_orig_params": None,
    "parallelism.ddp.bucket_cap": "25 MiB",
    "parallelism.ddp.gradient_as_bucket_view": False,
    f"{ZERO}.stage": 3,
    f"{ZERO}.overlap_comm": None,
    f"{ZERO}.contiguous_gradients": True,
    f"{ZERO}.reduce_scatter": True,
    f"{ZERO}.round_robin_gradients": False,
    f"{ZERO}.reduce_bucket_size": 500_000_000,
    f"{ZERO}.allgather_bucket_size": 500_000_000,
    f"{ZERO}.stage3_prefetch_bucket_size": 50_000_000,
    f"{ZERO}.stage3_param_persistence_threshold": 100_000,
    f"{ZERO}.stage3_max_live_parameters": 1_000_000_000,
    f"{ZERO}.stage3_max_reuse_distance": 1_000_000_000,
    f"{ZERO}.stage3_allgather_sequential": False,
    f"{ZERO}.sub_group_size": 1_000_000_000,
    f"{ZERO}.built_on": None,
}
"""Keys of one framework or another, each with the value that asks for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One framework's.

    ``axes``: axes of the mesh that it splits the job over; the first fills the world where none is
    given. ``reads``: which of ``SETTINGS``. Where the scenario doesn't say: ``precision``, and
    whose modules run, ``style`` (None: the preset's), as the framework's users have them.
    """

    axes: tuple[str, ...]
    reads: frozenset[str]
    precision: str
    style: str | None = "hf"
    wrap: str | None = None


RULES: dict[str, Rules] = {
    "fsdp2": Rules(
        axes=("dp_shard", "dp_replicate"),
        reads=frozenset(
            f"{FSDP}.{key}"
            for key in (
                "wrap",
                "reshard_after_forward",
                "reshard_last_block",
                "reshard_after_backward",
                "sync_every_micro_batch",
                "forward_prefetch",
            )
        ),
        precision="fsdp-mixed",
        style=None,
    ),
    "fsdp1": Rules(
        axes=("dp_shard", "dp_replicate"),
        reads=frozenset(
            f"{FSDP}.{key}"
            for key in (
                "wrap",
                "reshard_after_forward",
                "sync_every_micro_batch",
                "forward_prefetch",
                "backward_prefetch",
                "limit_all_gathers",
                "use_orig_params",
            )
        ),
        precision="fsdp-mixed",
        wrap="block",
    ),
    "ddp": Rules(
        axes=("dp_replicate",),
        reads=frozenset(
            {
                f"{FSDP}.sync_every_micro_batch",
                "parallelism.ddp.bucket_cap",
                "parallelism.ddp.gradient_as_bucket_view",
            }
        ),
        precision="autocast",
        wrap="none",
    ),
    "deepspeed": Rules(
        axes=("dp_shard",),
        reads=frozenset(key for key in SETTINGS if key.startswith(f"{ZERO}.")),
        precision="bf16-mixed-master",
        wrap="none",
    ),
    "single": Rules(axes=(), reads=frozenset(), precision="autocast", wrap="none"),
}
"""By ``parallelism.framework``."""

USUAL = "fsdp2"


def framework_in(tree: Map) -> str:
    """The framework that a tree names, as it stands there; empty where it names none."""
    node = find(tree, ("parallelism", "framework"))
    return str(node.value) if isinstance(node, Scalar) else ""


def rules_of(framework: str) -> Rules:
    """A framework's rules; those of FSDP2 where the name is none of ours."""
    return RULES.get(framework, RULES[USUAL])
