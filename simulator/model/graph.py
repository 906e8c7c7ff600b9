"""An op-level graph: what one module computes, keeps for backward, and does in backward.

A graph is a straight line of ops in the order the host issues them. *Values* are storages (views
share their base's). The times at which Python drops a value are part of the graph
(``Op.releases``), because PyTorch frees a storage when its last reference goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.kernels import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One activation storage; ``module`` is the report's module name (``layers.*.mlp``)."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter; ``shape`` as stored (linear: [out, in])."""

    name: str
    shape: tuple[int, ...]
    module: str

    @property
    def numel(self) -> int:
        """Number of elements."""
        total = 1
        for dim in self.shape:
            total *= dim
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class GradTensor:
    """A storage that an op's backward allocates.

    Exactly one of: the gradient of a value (``value``), of a weight (``weight``), or, with
    neither, a temporary of the backward.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    value: int | None = None
    weight: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardStep:
    """One kernel of an op's backward: allocates ``outputs``, then ``frees`` temporaries.

    Both index the op's ``gradients``.
    """

    kernel: Kernel
    outputs: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One host-issued operation and its autograd node.

    ``inputs``, ``outputs``, ``saves``, ``passes`` and ``releases`` are value numbers. ``saves``
    are what the node keeps for backward; ``passes`` the inputs that receive the incoming gradient
    itself (a residual add); ``releases`` what Python drops right after this op.
    """

    name: str
    kind: str
    module: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: Kernel
    saves: tuple[int, ...] = ()
    passes: tuple[int, ...] = ()
    gradients: tuple[GradTensor, ...] = ()
    backward: tuple[BackwardStep, ...] = ()
    releases: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One module's forward and, through its ops, its backward.

    ``input`` is the value that the caller passes in (None: token ids, which carry no gradient);
    ``output`` is returned to the caller. ``weights`` in registration order.
    """

    name: str
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    input: int | None
    output: int

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(weight.numel for weight in self.weights)

    def saved_values(self) -> frozenset[int]:
        """Every value that some node keeps for backward."""
        return frozenset(value for op in self.ops for value in op.saves)

    def saved_bytes(self) -> int:
        """Unrounded bytes autograd keeps, the graph's input included if it is kept."""
        total = 0
        for number in self.saved_values():
            value = self.values[number]
            size = value.dtype.itemsize
            for dim in value.shape:
                size *= dim
            total += size
        return total
