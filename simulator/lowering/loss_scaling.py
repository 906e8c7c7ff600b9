"""``torch.amp.GradScaler``: the loss is scaled, the gradients are checked and unscaled.

Source: torch/amp/grad_scaler.py; over DTensors torch/distributed/tensor/_dispatch.py,
``found_inf_reduce_handler``: ranks agree on whether a gradient has overflowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream, Tensor

MODULE = "optimizer"
SCALER = "scaler"
"""First word of the registers of what the scaler keeps between steps."""

FOUND = "found_inf"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaling:
    """What the scaler does around one optimizer's step.

    ``clips``: the training loop unscales before it clips; ``fused``: the optimizer unscales in its
    own kernel, and skips a step that has overflowed without asking the host.
    """

    gradient_bytes: int
    ranks: int
    clips: bool
    fused: bool

    def before_clipping(self, w: BlockWriter) -> None:
        """``unscale_(optimizer)``."""
        self._check(w, unscales=True)

    def before_step(self, w: BlockWriter) -> None:
        """``step(optimizer)`` until the optimizer's own."""
        if not self.clips:
            self._check(w, unscales=not self.fused)
        if self.fused:
            _hand_over(w, unscaled=self.clips)
        else:
            _wait(w)

    def after_step(self, w: BlockWriter) -> None:
        """What the optimizer was given goes; ``update()``: a new scale from what was found."""
        if self.fused:
            w.free_all(w.shared("own", name) for name in reversed(_given(unscaled=self.clips)))
        w.launch(_small("update"), MODULE)
        w.free(w.shared("own", FOUND))

    def _check(self, w: BlockWriter, *, unscales: bool) -> None:
        """Every gradient, checked and multiplied in one pass: by one over the scale, or by one.

        Whether one has overflowed stays until ``update()``, in a copy.
        """
        inverse = _inverse(w) if unscales else _temporary(w, "inverse")
        found = _temporary(w, "found_inf")
        copy = _scalar("found_inf.copy", Category.OPTIMIZER_TEMPORARIES)
        w.alloc(copy, slot=w.shared("own", FOUND))
        w.launch(_small("copy"), MODULE)
        copied, size = _temporary(w, "inverse.copy"), self.gradient_bytes
        passed = Elementwise(name="scaler.unscale", kind="optimizer", read=size, written=size)
        w.launch(passed, MODULE)
        if self.ranks > 1:
            _agree(w)
        w.free_all((copied, inverse, found))


def _scalar(name: str, category: Category, module: str = MODULE, width: int = 4) -> Tensor:
    dtype = {4: DType.FP32, 8: DType.INT64}[width]
    return Tensor(name=f"scaler.{name}", shape=(1,), dtype=dtype, category=category, module=module)


def _small(name: str) -> Elementwise:
    return Elementwise(name=f"scaler.{name}", kind="copy", read=4, written=4)


def write_scaler(w: BlockWriter) -> None:
    """The first ``scale()`` makes the scale and counts steps towards its growth."""
    for name in ("scale", "growth"):
        tensor = _scalar(name, Category.BUFFERS, "loss")
        w.alloc(tensor, slot=w.shared("own", f"{SCALER}.{name}"))
        w.launch(_small(name), "loss")


def write_scaled_loss(w: BlockWriter) -> None:
    """``scale(loss)``: a tensor of its own, which lives until backward returns."""
    w.alloc(_scalar("loss", Category.TEMPORARIES, "loss"), slot=w.shared("own", "scaled"))
    w.launch(_small("loss"), "loss")


def write_scaled_gradient(w: BlockWriter) -> int:
    """The scale times the gradient of one; returns its slot."""
    slot = w.alloc(_scalar("loss.grad", Category.TEMPORARIES, "loss"))
    w.launch(_small("loss.grad"), "loss")
    return slot


def _inverse(w: BlockWriter) -> int:
    """``_scale.double().reciprocal().float()``."""
    double = w.alloc(_scalar("double", Category.OPTIMIZER_TEMPORARIES, width=8))
    reciprocal = w.alloc(_scalar("reciprocal", Category.OPTIMIZER_TEMPORARIES, width=8))
    w.free(double)
    inverse = _temporary(w, "inverse")
    w.free(reciprocal)
    for name in ("double", "reciprocal"):
        w.launch(_small(name), MODULE)
    return inverse


def _temporary(w: BlockWriter, name: str) -> int:
    slot = w.alloc(_scalar(name, Category.OPTIMIZER_TEMPORARIES))
    w.launch(_small(name), MODULE)
    return slot


def _agree(w: BlockWriter) -> None:
    """The largest of all ranks, in a tensor of its own that is copied back."""
    found = w.alloc(_scalar("found_inf.all", Category.OPTIMIZER_TEMPORARIES))
    w.collective(
        Collective(
            kind="all_reduce",
            bytes=4,
            group="dp_shard",
            stream=Stream.COMPUTE,
            name="all_reduce found_inf",
            module=MODULE,
        )
    )
    w.launch(_small("found_inf"), MODULE)
    w.free(found)


def _wait(w: BlockWriter) -> None:
    """``found_inf.item()``: the host copies the answer and waits for it."""
    w.launch(Elementwise(name="scaler.item", kind="device_to_host", read=4, written=4), MODULE)
    event = w.local()
    w.record(event, Stream.COMPUTE)
    w.host_wait(event)


def _given(*, unscaled: bool) -> tuple[str, ...]:
    return ("step_found_inf",) if unscaled else ("step_found_inf", "step_scale")


def _hand_over(w: BlockWriter, *, unscaled: bool) -> None:
    """A fused optimizer gets ``found_inf`` and, unless gradients are unscaled, the scale."""
    for name in _given(unscaled=unscaled):
        w.alloc(_scalar(name, Category.OPTIMIZER_TEMPORARIES), slot=w.shared("own", name))
        w.launch(_small(name), MODULE)
