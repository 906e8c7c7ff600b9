"""What an autograd node does in backward, written step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Kernel
from simulator.model.graph import BackwardStep, GradTensor, Value


class Rule:
    """Collects the gradients and steps of one op; each ``make`` is one kernel's launch."""

    def __init__(self, name: str, kind: str = "copy") -> None:
        self.name, self.kind = name, kind
        self._gradients: list[GradTensor] = []
        self._steps: list[BackwardStep] = []
        self._promoted: list[tuple[int, GradTensor]] = []

    def make(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType,
        *,
        value: int | None = None,
        weight: str | None = None,
        read: int | None = None,
        kernel: Kernel | None = None,
        toward: int | str | None = None,
        reads: tuple[int, ...] | None = None,
    ) -> int:
        """Allocate one tensor; returns its number.

        ``read``: bytes that the kernel reads (default: as many as it writes). ``toward`` and
        ``reads``: as in ``GradTensor``.
        """
        made = GradTensor(
            name=f"{self.name}.{name}",
            shape=tuple(shape),
            dtype=dtype,
            value=value,
            weight=weight,
            toward=toward,
            reads=reads,
        )
        size = made.bytes
        default = Elementwise(
            name=made.name, kind=self.kind, read=size if read is None else read, written=size
        )
        return self.launch(kernel or default, made)

    def promoted(
        self,
        name: str,
        dtype: DType,
        *,
        value: int,
        known: Value,
        read: int,
        reads: tuple[int, ...],
    ) -> None:
        """The gradient of ``value`` in the wider ``dtype`` that its op was computed in.

        ``settle`` casts it to the value's own.
        """
        if dtype is known.dtype:
            self.make(name, known.shape, dtype, value=value, read=read, reads=reads)
            return
        wide = self.make(name, known.shape, dtype, toward=value, read=read)
        made = GradTensor(
            name=f"{self.name}.{name}.cast",
            shape=known.shape,
            dtype=known.dtype,
            value=value,
            reads=reads,
        )
        self._promoted.append((wide, made))

    def settle(self) -> None:
        """The node is done, and the engine casts its gradients (``validate_outputs``)."""
        for wide, made in self._promoted:
            read = self._gradients[wide].bytes
            self.launch(
                Elementwise(name=made.name, kind="copy", read=read, written=made.bytes), made
            )
            self.free(wide)
        self._promoted.clear()

    def launch(self, kernel: Kernel, *made: GradTensor, whole: bool = False) -> int:
        """One kernel that allocates ``made``; returns the number of the first."""
        first = len(self._gradients)
        self._gradients.extend(made)
        outputs = tuple(range(first, first + len(made)))
        self._steps.append(BackwardStep(kernel=kernel, outputs=outputs, whole=whole))
        return first

    def free(self, *numbers: int) -> None:
        """The last step's end drops these temporaries."""
        step = self._steps[-1]
        self._steps[-1] = replace(step, frees=(*step.frees, *numbers))

    def drop_incoming(self) -> None:
        """The last step's end drops the incoming gradient."""
        self._steps[-1] = replace(self._steps[-1], drops_incoming=True)

    def by_engine(self) -> None:
        """The engine runs the last step, when the node has returned."""
        self._steps[-1] = replace(self._steps[-1], by_engine=True)

    @property
    def gradients(self) -> tuple[GradTensor, ...]:
        """All tensors in the order of their allocation."""
        return tuple(self._gradients)

    @property
    def steps(self) -> tuple[BackwardStep, ...]:
        """All kernels in order."""
        return tuple(self._steps)
