"""The code inside each block of a training step: units, the loss, and what stands between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.accumulate import AccumulateGrad
from simulator.lowering.again import Around
from simulator.lowering.autograd import write_backward, write_forward
from simulator.lowering.calls import Gradient
from simulator.lowering.framework.hooks import Backward, Hook
from simulator.lowering.loss_scaling import (
    write_scaled_gradient,
    write_scaled_loss,
    write_scaler,
)
from simulator.lowering.unit_bodies import UnitBodies, drop_input, named
from simulator.lowering.units import LOSS, Unit
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Tensor


class Bodies(UnitBodies):
    """Writes one block a method."""

    def loss_forward(
        self, w: BlockWriter, hook: Hook, units: Sequence[Unit], left: str, *, replaces: bool
    ) -> None:
        """The loss; the training loop drops the logits when it has returned, unless it keeps them.

        ``hook``: when the model's forward returns. ``replaces``: the loop kept the logits of the
        forward before until then. ``left``: first word of the registers in which the head's
        gradients are left. Leaving autocast drops its cache: the casts that no node keeps go.
        """
        graph, inside = self.loss.graph, self.part.inside
        slots = self._slots(w, self.loss)
        slots |= self._given(w, "previous", left)
        held = frozenset(() if graph.until_next is None else (graph.until_next,))
        write_forward(w, graph, self.loss.recompute, slots, range(inside), held)
        self._drop_through_loss(w)
        hook.write(w)
        if replaces:
            w.free(w.shared("before", "held"))
        rest = range(inside, len(graph.ops))
        write_forward(w, graph, self.loss.recompute, slots, rest, held)
        if graph.input not in held:
            drop_input(w, self.loss, slots)
        for unit in units:
            w.free_all(
                w.shared(unit.label, f"kept.{unit.kind.graph.values[value].name}")
                for value in sorted(unit.kind.recompute.until_loss)
            )
        w.mark("fwd_done")

    def _given(self, w: BlockWriter, head: str, left: str) -> dict[int, int]:
        """Slots of the head's gradients that the loss' forward makes; ``head`` is its role."""
        graph, found = self.loss.graph, {}
        for op in graph.ops:
            for given in op.gives:
                if given.weight in self.tied:
                    found[given.saved] = w.shared("embed", f"tied.{given.weight}")
                elif given.weight is not None:
                    found[given.saved] = w.shared(head, f"{left}.{given.weight}")
        return found

    def _drop_through_loss(self, w: BlockWriter) -> None:
        """The model's forward, which has computed the loss, returns: what its locals held goes."""
        for value in self.head.graph.through_loss:
            if value not in self.head.recompute.kept:
                w.free(w.shared("previous", f"kept.{named(self.head, value)}"))

    def loss_backward(
        self, w: BlockWriter, hooks: Mapping[int, Hook], *, first: bool = False
    ) -> None:
        """``loss.backward()`` of a loss of logits.

        ``hooks``: those on what the model returned that fire here, by how many ops of the loss had
        run when it was there. With loss scaling it is the scaled loss'; ``first``: the scaler is
        made, too.
        """
        slots = self._slots(w, self.loss)
        nodes = AccumulateGrad(w, self.loss.graph, Backward(), ())
        out = self._loss_backward(w, "own", slots, nodes, hooks, first=first)
        w.promote(out, "previous", "grad")

    def _loss_backward(
        self,
        w: BlockWriter,
        own: str,
        slots: dict[int, int],
        nodes: AccumulateGrad,
        hooks: Mapping[int, Hook],
        *,
        first: bool = False,
    ) -> int:
        """It starts from a gradient of one, which lives until ``loss.backward()`` returns.

        Returns the slot of the gradient of the loss' input.
        """
        scaled = self.training.precision.loss_scaling
        if scaled:
            if first:
                write_scaler(w)
            write_scaled_loss(w)
        root = Tensor(
            name="loss.grad",
            shape=(1,),
            dtype=DType.FP32,
            category=Category.TEMPORARIES,
            module=LOSS,
        )
        slot = w.alloc(root, slot=w.shared(own, "grad"))
        w.launch(Elementwise(name="ones_like", kind="copy", read=0, written=4), LOSS)
        gradient = Gradient(slot, holders=2)
        if scaled:
            gradient = Gradient(write_scaled_gradient(w), holders=1)
        kept = self.loss.recompute.kept
        out = write_backward(
            w,
            self.loss.graph,
            self.loss.recompute,
            {value: slot for value, slot in slots.items() if value in kept},
            gradient,
            nodes.run,
            {},
            {number: partial(hook.write, w) for number, hook in hooks.items()},
        )
        assert out is not None
        return out

    def projected_backward(
        self,
        w: BlockWriter,
        hooks: Backward,
        returned: Mapping[int, Hook],
        *,
        returns: frozenset[str],
    ) -> None:
        """The backward of a loss that projects, and of what is left of the head: the norm.

        The hook of a head whose forward the framework completed fires after the root's first one.
        """
        kind, inside = self.head, self.part.inside
        slots = self._slots(w, self.loss, own="loss", previous="own")
        slots |= self._given(w, "own", hooks.left)
        nodes = AccumulateGrad(w, kind.graph, hooks, self.tied)
        first = returned[inside]

        def both(w: BlockWriter) -> None:
            first.write(w)
            hooks.before(w)

        fired = {**returned, inside: Hook(write=both)}
        middle = self._loss_backward(w, "loss", slots, nodes, fired)
        around = Around()
        out = self._run_backward(
            w, kind, Gradient(middle), nodes, hooks, returns=returns, around=around
        )
        if out is not None:
            w.promote(out, "previous", "grad")
        hooks.after(w, nodes.gradients)

    def end_backward(self, w: BlockWriter, hook: Hook) -> None:
        """The engine returns: the loss and its gradient go; then the loop drops the batch.

        The embedding's output, where it was made to require a gradient, goes with its gradient.
        """
        hook.write(w)
        scaled = ("scaled",) if self.training.precision.loss_scaling else ()
        w.free_all(w.shared("loss", name) for name in ("grad", *scaled))
        if self.leaf:
            w.free_all(w.shared("embed", name) for name in ("grad", "out"))
        w.free(w.shared("loss", "out"))
        w.mark("bwd_done")
        w.free_all(w.shared("own", name) for name in self.inputs)
