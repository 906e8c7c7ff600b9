"""What a GPU kernel computes and moves: facts about work, without a clock.

Sizes are of one launch on one device. ``timing/`` turns them into seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n]; ``batch`` independent products."""

    name: str
    m: int
    n: int
    k: int
    dtype: DType
    batch: int = 1

    @property
    def flops(self) -> int:
        """2·m·n·k a product: one multiply and one add."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Both operands read once, the result written once."""
        return (
            self.batch * self.dtype.itemsize * (self.m * self.k + self.k * self.n + self.m * self.n)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm:
    """One launch of many independent products, one an expert; ``parts`` are those of equal shape.

    Its FLOPs and bytes are its parts' sums.
    """

    name: str
    parts: tuple[Gemm, ...]

    @property
    def dtype(self) -> DType:
        """The operands' dtype."""
        return self.parts[0].dtype

    @property
    def flops(self) -> int:
        """2·m·n·k a product."""
        return sum(part.flops for part in self.parts)

    @property
    def bytes(self) -> int:
        """Operands read once, results written once."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One fused scaled-dot-product attention kernel (flash and its kin).

    ``backward`` kernels do 2.5 times the forward's FLOPs: five products against two
    (FlashAttention-2, arXiv:2307.08691, section 3.2). ``v_head_dim``: of values and output
    (0: ``head_dim``, which is of queries and keys).
    """

    name: str
    kernel: str  # "flash" | "efficient" | ...: which implementation runs
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    dtype: DType
    causal: bool
    backward: bool
    v_head_dim: int = 0

    @property
    def flops(self) -> int:
        """2·b·h·s_q·s_k·(d + d_v) forward, half where a causal mask skips, times 2.5 backward."""
        width = self.head_dim + (self.v_head_dim or self.head_dim)
        full = 2 * self.batch * self.heads * self.seq_q * self.seq_k * width
        forward = full // 2 if self.causal else full
        return forward * 5 // 2 if self.backward else forward

    @property
    def bytes(self) -> int:
        """q, k, v and the output once each; twice that in backward (their gradients)."""
        width = self.head_dim + (self.v_head_dim or self.head_dim)
        queries = self.batch * self.heads * self.seq_q * width
        keys = self.batch * self.kv_heads * self.seq_k * width
        once = self.dtype.itemsize * (queries + keys)
        return 2 * once if self.backward else once


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """A kernel bound by memory: what it reads and writes says how long it takes.

    ``kind`` names the efficiency class of ``timing/``: ``copy`` (also residual adds and casts),
    ``norm``, ``norm_backward``, ``activation``, ``rope``, ``softmax``, ``gather``, ``optimizer``.
    """

    name: str
    kind: str
    read: int
    written: int
    flops: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


Kernel = Gemm | GroupedGemm | Attention | Elementwise
