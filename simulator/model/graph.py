"""An op-level graph: what one module computes, keeps for backward, and does in backward.

A graph is a straight line of ops in the order the host issues them. *Values* are storages, or
views of one (``Value.base``), which allocate nothing but receive gradients of their own. The times
at which Python drops a storage are part of the graph (``Op.releases``), because PyTorch frees a
storage when its last reference goes.

Some storages belong to the model's own ``forward`` and not to one module of it: the rotary
tables, a mask. The embedding's graph *lends* them (``Graph.lends``) and later graphs *borrow* them
under the same name (``Graph.borrows``). Such a storage goes when Python has dropped it (a release
in the last graph that borrows it) and no node of any layer keeps it (``Op.borrows``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from simulator.dtypes import DType
from simulator.fine_tuning import Nf4
from simulator.kernels import Kernel

VIEW = "view"
"""Kind of an op that makes views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One activation storage; ``module`` is the report's module name (``layers.*.mlp``).

    ``base``: this is a view of that storage, or its content after an op that works in place. Its
    own number: it is a parameter, whose storage is no activation.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    module: str
    base: int | None = None

    @property
    def bytes(self) -> int:
        """Unrounded bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter; ``shape`` as stored (linear: [out, in]).

    ``tied``: the storage belongs to the embedding's graph, under the same name. The two gradients
    meet in one AccumulateGrad node and are summed out of place. ``trainable``: requires_grad.
    ``dtype``: None is the dtype of the plan's precision. ``nf4``: stored in 4 bits, four to an
    element of its dtype. ``routed``: the first dim counts experts, and a token meets so many of
    them (0: it meets the whole weight). ``gathered``: the dtype that FSDP2 gathers it in, if not
    the plan's.
    """

    name: str
    shape: tuple[int, ...]
    module: str
    tied: bool = False
    trainable: bool = True
    dtype: DType | None = None
    nf4: Nf4 | None = None
    routed: int = 0
    gathered: DType | None = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the tensor that is stored and sharded."""
        return self.shape if self.nf4 is None else (self.numel // 4, 1)

    @property
    def stored(self) -> int:
        """Elements of that tensor."""
        return prod(self.stored_shape)

    @property
    def active(self) -> int:
        """Elements that one token meets."""
        return self.routed * prod(self.shape[1:]) if self.routed else self.numel


@dataclass(frozen=True, slots=True, kw_only=True)
class GradTensor:
    """A storage that an op's backward allocates.

    Exactly one of: the gradient of a value (``value``), of a weight (``weight``), or, with
    neither, a temporary of the backward. ``toward``: the value or weight whose gradient alone
    needs the temporary. ``reads``: what it needs of the op's kept values (None: all of them).
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    value: int | None = None
    weight: str | None = None
    toward: int | str | None = None
    reads: tuple[int, ...] | None = None

    @property
    def target(self) -> int | str | None:
        """The value or weight whose gradient this is or serves; None: whichever is asked for."""
        return next((t for t in (self.value, self.weight, self.toward) if t is not None), None)

    @property
    def bytes(self) -> int:
        """Unrounded bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardStep:
    """One kernel of an op's backward: allocates ``outputs``, then ``frees`` temporaries.

    Both index the op's ``gradients``. ``drops_incoming``: the incoming gradient goes right after
    this step and not at the node's end (several PyTorch nodes are written as one op). ``whole``:
    the kernel makes all its outputs, even those that nobody asks for. ``by_engine``: the engine
    runs it when the node has returned, as the sum to a gradient's shape (``validate_outputs`` of
    torch/csrc/autograd/engine.cpp); a checkpoint has then let go of what the node unpacked.
    """

    kernel: Kernel
    outputs: tuple[int, ...]
    frees: tuple[int, ...] = ()
    drops_incoming: bool = False
    whole: bool = False
    by_engine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A saved storage that backward hands on as a gradient: of a value, or of a weight."""

    saved: int
    value: int | None = None
    weight: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One host-issued operation and its autograd node.

    ``inputs``, ``outputs``, ``saves``, ``passes``, ``releases`` and ``borrows`` are value numbers.
    ``saves`` are the storages the node keeps for backward, ``borrows`` those that it keeps and the
    graph has only borrowed; ``passes`` the inputs that receive the incoming gradient itself (a
    residual add); ``releases`` what Python drops right after this op. ``accumulates``: the weight
    whose gradient arrives here whole (AccumulateGrad), summed over all that reads the parameter;
    ``gives``: gradients that forward computed already.
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
    borrows: tuple[int, ...] = ()
    accumulates: str = ""
    gives: tuple[Given, ...] = ()

    @property
    def is_view(self) -> bool:
        """Makes views only: no storage, no kernel; its backward may well have kernels."""
        return self.kind == VIEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of ops that one function call issues: those from ``first`` up to ``end``.

    ``name``: what module-wise checkpointing calls it, such as ``core_attn``. ``unread``: arguments
    that it is passed and does not read.
    """

    name: str
    first: int
    end: int
    unread: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One module's forward and, through its ops, its backward.

    ``input`` is the value that the caller passes in (None: token ids, which carry no gradient);
    ``output`` is returned to the caller. ``weights`` in registration order. ``lends`` outlive the
    graph; ``borrows`` are lent by the embedding's graph and found there by name. ``until_loss``
    are held by the training step's autocast context until the loss is there; ``until_return`` by
    the caller until the framework's hooks have run; ``through_loss`` by the model's forward, which
    computes the loss too; ``until_next`` by the training loop until the model's next forward has
    returned. ``parts`` can be checkpointed alone. ``tables`` are buffers of the model, passed as
    arguments: a node that reads one keeps it, which costs nothing. ``casts``: how many of the first
    ops are the framework's, which casts what the module is passed; ``returns``: values that are
    returned beside the output, and which the caller holds until the next module returns.
    """

    name: str
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    input: int | None
    output: int
    lends: tuple[int, ...] = ()
    borrows: tuple[int, ...] = ()
    until_loss: tuple[int, ...] = ()
    until_return: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()
    tables: tuple[int, ...] = ()
    through_loss: tuple[int, ...] = ()
    until_next: int | None = None
    casts: int = 0
    returns: tuple[int, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of the weights that are this graph's own."""
        return sum(weight.numel for weight in self.weights if not weight.tied)

    @property
    def active_parameters(self) -> int:
        """Of those, elements that one token meets."""
        return sum(weight.active for weight in self.weights if not weight.tied)

    def root(self, value: int) -> int:
        """The storage of a value: itself, or what it is a view of."""
        base = self.values[value].base
        return value if base is None else base

    @property
    def has_backward(self) -> bool:
        """Whether its output requires a gradient."""
        return any(op.gradients or op.passes for op in self.ops)

    @property
    def input_requires_grad(self) -> bool:
        """Whether its backward makes a gradient of its input."""
        targets = {made.value for op in self.ops for made in op.gradients}
        passed = {value for op in self.ops for value in op.passes}
        return self.input is not None and self.input in targets | passed

    @property
    def trained(self) -> tuple[Weight, ...]:
        """The weights that are trained."""
        return tuple(weight for weight in self.weights if weight.trainable)

    def saved_values(self) -> frozenset[int]:
        """Every value that some node keeps for backward."""
        saved = {value for op in self.ops for value in op.saves}
        return frozenset(saved | {given.saved for op in self.ops for given in op.gives})

    def saved_bytes(self) -> int:
        """Unrounded bytes autograd keeps, the graph's input included if it is kept."""
        return sum(self.values[number].bytes for number in self.saved_values())
