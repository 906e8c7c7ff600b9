"""What an autograd node does in backward, written step by step."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.dtypes import DType
from simulator.kernels import Elementwise, Kernel
from simulator.model.graph import BackwardStep, GradTensor


class Rule:
    """Collects the gradients and steps of one op; each ``make`` is one kernel's launch."""

    def __init__(self, name: str, kind: str = "copy") -> None:
        self.name, self.kind = name, kind
        self._gradients: list[GradTensor] = []
        self._steps: list[BackwardStep] = []

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
    ) -> int:
        """Allocate one tensor; returns its number.

        ``read``: bytes that the kernel reads (default: as many as it writes).
        """
        made = GradTensor(
            name=f"{self.name}.{name}",
            shape=tuple(shape),
            dtype=dtype,
            value=value,
            weight=weight,
        )
        size = made.bytes
        default = Elementwise(
            name=made.name, kind=self.kind, read=size if read is None else read, written=size
        )
        return self.launch(kernel or default, made)

    def launch(self, kernel: Kernel, *made: GradTensor) -> int:
        """One kernel that allocates ``made``; returns the number of the first."""
        first = len(self._gradients)
        self._gradients.extend(made)
        self._steps.append(
            BackwardStep(kernel=kernel, outputs=tuple(range(first, first + len(made))))
        )
        return first

    def free(self, *numbers: int) -> None:
        """The last step's end drops these temporaries."""
        step = self._steps[-1]
        self._steps[-1] = BackwardStep(
            kernel=step.kernel,
            outputs=step.outputs,
            frees=(*step.frees, *numbers),
            drops_incoming=step.drops_incoming,
        )

    def drop_incoming(self) -> None:
        """The last step's end drops the incoming gradient."""
        step = self._steps[-1]
        self._steps[-1] = BackwardStep(
            kernel=step.kernel, outputs=step.outputs, frees=step.frees, drops_incoming=True
        )

    @property
    def gradients(self) -> tuple[GradTensor, ...]:
        """All tensors in the order of their allocation."""
        return tuple(self._gradients)

    @property
    def steps(self) -> tuple[BackwardStep, ...]:
        """All kernels in order."""
        return tuple(self._steps)
