"""What a process holds of its GPU beside the allocator's segments: CUDA's context, NCCL's buffers.

nvidia-smi shows these and the segments together. Their sizes are known roughly and by cases, so
each comes with a spread; the constants are in ``data/outside.json`` with their sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from simulator.hardware.cluster import Cluster
from simulator.trace.header import Outside, Spread

MIB = 1 << 20


@cache
def _constants() -> Any:
    return json.loads((Path(__file__).parent / "data" / "outside.json").read_text("utf-8"))


def workspace_bytes(family: str) -> int:
    """A cuBLAS workspace on a GPU of ``family``; PyTorch asks its own allocator for it."""
    sizes = _constants()["workspace"]["bytes"]
    return int(sizes.get(family, sizes["default"]))


def outside(cluster: Cluster, groups: Iterable[Sequence[int]]) -> Outside:
    """A process' context, and a communicator for each of its ``groups`` of ranks."""
    each = [_communicator(cluster, members) for members in groups if len(members) > 1]
    nccl = _constants()["nccl"]["mib"]
    return Outside(
        context=_spread(_constants()["context"]["mib"]),
        nccl=_spread([sum(nccl[kind][i] for kind in each) for i in range(3)]),
    )


def _spread(mib: Sequence[int]) -> Spread:
    low, usual, high = (size * MIB for size in mib)
    return Spread(low=low, usual=usual, high=high)


def _communicator(cluster: Cluster, members: Sequence[int]) -> str:
    """What a group's connections go over, the slowest of them."""
    if len({cluster.devices[member].node for member in members}) > 1:
        return "network"
    route = cluster.route(members[0], members[1])
    kinds = {cluster.links[link].kind for link in route}
    return "nvlink" if kinds & {"nvlink", "xgmi"} else "pcie"
