"""The training loop, recorded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from recorder import checkpointing
from recorder.case import STEPS, Case
from recorder.fake import kernels, ranks
from recorder.frameworks import Framework, framework_of
from recorder.models import Built, build, masked
from recorder.optimizers import OPTIMIZERS, Together
from recorder.tracing.events import Recording
from recorder.tracing.tracer import Tracer


def record(case: Case) -> Recording:
    """Run a case for two steps."""
    ranks.join(case.ws)
    kernels.choose(case.attn)
    with FakeTensorMode(allow_non_fake_inputs=True):
        return _Run(case).run()


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's collector would free at moments of its own."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Run:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.built: Built = build(case)
        checkpointing.apply(self.built.blocks, case.ac)
        self.framework: Framework = framework_of(case)
        self.module: nn.Module = self.framework.wrap(self.built)
        checkpointing.apply_around(self.built, case.ac)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer: Optimizer | Together | None = None
        if case.opt is not None and not case.in_backward:
            self.optimizer = OPTIMIZERS[case.opt](self.parameters)
        self.scaler = torch.amp.GradScaler("cuda", enabled=case.loss_scaling)
        self.tracer = Tracer()
        if case.in_backward:
            self._step_in_backward()
        checkpointing.label_recomputed(self.built.blocks, self.tracer)

    def run(self) -> Recording:
        with no_collection(), self.tracer, self.framework.watched(self.tracer):
            for parameter in self.module.parameters():
                self.tracer.tag(parameter, "sharded_param")
            for buffer in self.module.buffers():
                self.tracer.tag(buffer, "buffer")
            self.framework.label(self.module, self.tracer)
            self.module = self.framework.started(self.module, self.tracer)
            self.tracer.mark("start")
            for step in range(STEPS):
                for micro in range(self.case.grad_accum):
                    self._micro_step(step, micro)
                self._update(step)
            return self.tracer.recording

    def _micro_step(self, step: int, micro: int) -> None:
        tracer, many = self.tracer, self.case.grad_accum > 1
        place = f"{step}.{micro}" if many else str(step)
        last = micro == self.case.grad_accum - 1
        tracer.phase = f"fwd:{place}"
        with self.framework.micro_step(self.module, last=last):
            with tracer.category("input"):
                tokens, labels = self._batch(), self._batch()
                mask = None if self.case.mask == "none" else self._batch()
            with self._autocast():
                loss = self.built.loss(masked(self.module, mask), tokens, labels, self._at)
            self.framework.label(self.module, tracer)
            tracer.mark("fwd_done")
            tracer.phase = f"bwd:{place}"
            self._scaled(loss).backward()
            del loss
            self.framework.label(self.module, tracer)
            tracer.mark("bwd_done")

    def _scaled(self, loss: Tensor) -> Tensor:
        if not self.case.loss_scaling:
            return loss
        scaled = self.scaler.scale(loss)
        for kept in (self.scaler._scale, self.scaler._growth_tracker):
            if kept is not None:
                self.tracer.tag(kept, "buffer")
        return scaled

    def _update(self, step: int) -> None:
        tracer = self.tracer
        tracer.module = ""
        if self.case.clip:
            tracer.phase = f"clip:{step}"
            if self.case.loss_scaling:
                self.scaler.unscale_(self.optimizer)
            own = getattr(self.module, "clip_grad_norm_", None)  # FSDP1's root has one
            if own is not None:
                own(1.0)
            else:
                clip_grad_norm_(self.parameters, 1.0, foreach=True)
        if self.case.in_backward:
            tracer.mark("opt_done")
        elif self.optimizer is None:
            for parameter in self.parameters:
                parameter.grad = None
        else:
            tracer.phase = f"opt:{step}"
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self._label_states(self.optimizer)
            tracer.mark("opt_done")
            self.optimizer.zero_grad(set_to_none=True)
        tracer.mark("zero_grad")

    def _step_in_backward(self) -> None:
        """An optimizer a parameter, stepped in a hook, as torchtitan and torchtune do."""
        assert self.case.opt is not None
        for parameter in self.parameters:
            optimizer = OPTIMIZERS[self.case.opt]([parameter])

            def hook(_: Tensor, optimizer: Optimizer | Together = optimizer) -> None:
                optimizer.step()
                self._label_states(optimizer)
                optimizer.zero_grad()

            parameter.register_post_accumulate_grad_hook(hook)

    def _label_states(self, optimizer: Optimizer | Together) -> None:
        for states in optimizer.state.values():
            for state in states.values():
                if isinstance(state, Tensor):
                    self.tracer.tag(state, "optstate")

    def _batch(self) -> Tensor:
        return torch.zeros(self.case.mb, self.case.seq, dtype=torch.long, device="cuda")

    def _at(self, module: str) -> None:
        self.tracer.module = module

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", torch.bfloat16) if self.case.autocast else nullcontext()
