"""What a rank issues on its host thread, in order. No clock in it.

A *slot* is a number that stands for a tensor inside a block; an *event* number stands for a CUDA
event. Slots below ``len(block.parameters)`` are bound by each call to a register of the program,
the others are local to the call (``program.py``).

Module names hold ``*`` where the layer number goes: ``layers.*.attention``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from simulator.dtypes import DType
from simulator.kernels import Kernel


class Stream(Enum):
    """The CUDA streams of one rank, by the names of FSDP2 (torch ``FSDPCommContext``) and FSDP1."""

    COMPUTE = "default"
    ALL_GATHER_COPY_IN = "all_gather_copy_in"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    PRE_UNSHARD = "pre_unshard"
    UNSHARD = "unshard"
    POST_BACKWARD = "post_backward"


class Category(Enum):
    """What an allocation is for: the closed list of a memory breakdown."""

    PARAMETERS = "parameters"
    UNSHARDED_PARAMETERS = "unsharded_parameters"
    ALL_GATHER = "all_gather"
    GRADIENTS = "gradients"
    UNSHARDED_GRADIENTS = "unsharded_gradients"
    REDUCE_SCATTER = "reduce_scatter"
    OPTIMIZER = "optimizer"
    OPTIMIZER_TEMPORARIES = "optimizer_temporaries"
    ACTIVATIONS = "activations"
    RECOMPUTED = "recomputed"
    TEMPORARIES = "temporaries"
    INPUTS = "inputs"
    BUFFERS = "buffers"


def rounded(requested: int) -> int:
    """Bytes the caching allocator counts for a request: the next multiple of 512.

    Source: ``kMinBlockSize`` in c10/cuda/CUDACachingAllocator.cpp. Zero bytes make no block.

    >>> rounded(1), rounded(512), rounded(0)
    (512, 512, 0)
    """
    return (requested + 511) // 512 * 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One storage that the allocator is asked for."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    category: Category
    module: str

    @property
    def requested(self) -> int:
        """Bytes asked for."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Bytes counted as allocated: the request rounded to 512."""
        return rounded(self.requested)


@dataclass(frozen=True, slots=True)
class Alloc:
    """Ask the allocator for ``tensor`` on ``stream`` and put it in ``slot``."""

    slot: int
    tensor: Tensor
    stream: Stream


@dataclass(frozen=True, slots=True)
class Free:
    """The last reference to what is in ``slot`` goes."""

    slot: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Enqueue ``kernel`` on ``stream``; costs the host one launch."""

    kernel: Kernel
    stream: Stream
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Enqueue a collective of ``group`` (a mesh axis, e.g. ``dp_shard``) on ``stream``.

    ``bytes`` is the full message S per rank as NCCL counts it: the gathered output of an
    all_gather, the whole input of a reduce_scatter, the buffer of an all_reduce, what a rank has
    of an all_to_all.
    """

    kind: str  # "all_gather" | "reduce_scatter" | "all_reduce" | "all_to_all"
    bytes: int
    group: str
    stream: Stream
    name: str
    module: str


@dataclass(frozen=True, slots=True)
class Record:
    """cudaEventRecord: ``event`` completes when all work now queued on ``stream`` has."""

    event: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class Wait:
    """cudaStreamWaitEvent: later work of ``stream`` starts after ``event``. Unrecorded: no wait."""

    event: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host thread blocks until ``event`` has completed."""

    event: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A framework hook boundary, e.g. ``pre_fwd.begin:layers.*``; costs nothing."""

    name: str


Instruction = Alloc | Free | Launch | Collective | Record | Wait | HostWait | Mark
