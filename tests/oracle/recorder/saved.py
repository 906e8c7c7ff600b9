"""What one block leaves behind for its backward, storage by storage.

The middle of three blocks runs in the case's compute dtype, unsharded. What it allocated and is
still live once the loss is there was kept for backward; so was its input, if it lives. Autograd's
hooks say who saved what, but not what checkpointing keeps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from recorder import checkpointing
from recorder.case import Case
from recorder.fake import kernels
from recorder.models import Built, build, masked
from recorder.tracing.events import Storage
from recorder.tracing.tracer import Tracer

BLOCKS = 3
WATCHED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A storage that waits for backward; ``uses``: the modules that saved it, and as what."""

    bytes: int
    producer: str
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """All that a block keeps; ``unit`` is tokens times hidden size."""

    kept: tuple[Kept, ...]
    unit: int

    def lines(self) -> Iterator[str]:
        """For a reader: bytes, and bytes a token and hidden unit."""
        total = sum(kept.bytes for kept in self.kept)
        yield f"{total:>16,} {total / self.unit:>9.4f}  all that the block keeps"
        for kept in sorted(self.kept, key=lambda kept: -kept.bytes):
            uses = "; ".join(kept.uses)
            yield f"{kept.bytes:>16,} {kept.bytes / self.unit:>9.4f}  {kept.producer}  {uses}"


def saved(case: Case) -> Saved:
    """Run a case's model forward and look at its middle block."""
    case = replace(case, n_layers=BLOCKS, master=case.param_dtype or case.master)
    kernels.choose(case.attn)
    with FakeTensorMode(allow_non_fake_inputs=True):
        built = build(case)
        checkpointing.apply(built.blocks, case.ac)
        return _Watch(built).run(case)


class _Watch:
    def __init__(self, built: Built) -> None:
        self.built, self.tracer = built, Tracer()
        self._uses: dict[Storage, list[str]] = defaultdict(list)
        self._inside: list[str] = []
        self._hooks: Any = nullcontext()
        self._candidates: list[Storage] = []
        self._output: Storage | None = None
        self._first = self._unit = 0

    def run(self, case: Case) -> Saved:
        block = self.built.blocks[WATCHED]
        block.register_forward_pre_hook(self._begin, with_kwargs=True)
        block.register_forward_hook(self._end)
        for name, module in block.named_modules():
            self._follow(name, module)
        with self.tracer:
            for tensor in (*self.built.root.parameters(), *self.built.root.buffers()):
                self.tracer.tag(tensor, "model")
            self.tracer.phase = "fwd:0"
            tokens = torch.zeros(case.mb, case.seq, dtype=torch.long, device="cuda")
            autocast = torch.autocast("cuda", torch.bfloat16) if case.autocast else nullcontext()
            with autocast:
                module = masked(self.built.root, None if case.mask == "none" else tokens)
                loss = self.built.loss(module, tokens, tokens, lambda _: None)
            kept = self._kept()
            del loss
        return Saved(kept=kept, unit=self._unit)

    def _follow(self, name: str, module: nn.Module) -> None:
        module.register_forward_pre_hook(lambda *_: self._inside.append(name))
        module.register_forward_hook(lambda *_: self._leave(), always_call=True)

    def _leave(self) -> None:
        self._inside.pop()

    def _begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        self._unit = hidden.numel()
        self._candidates.append(self.tracer.storage_of(hidden))
        self._first = len(self.tracer.recording.events)
        self._hooks = saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooks.__enter__()

    def _end(self, _: nn.Module, args: Any, output: Any) -> None:
        self._hooks.__exit__(None, None, None)
        self._output = self.tracer.storage_of(output[0] if isinstance(output, tuple) else output)
        inside = self.tracer.recording.events[self._first :]
        self._candidates += [event.storage for event in inside if event.change > 0]

    def _pack(self, tensor: Tensor) -> Tensor:
        dtype = str(tensor.dtype).removeprefix("torch.")
        where = self._inside[-1] if self._inside else ""
        use = f"{where or 'block'} {list(tensor.shape)} {dtype}"
        uses = self._uses[self.tracer.storage_of(tensor)]
        if use not in uses:
            uses.append(use)
        return tensor

    def _kept(self) -> tuple[Kept, ...]:
        producer = {
            event.storage: event.op for event in self.tracer.recording.events if event.change > 0
        }
        return tuple(
            Kept(bytes=storage.bytes, producer=producer[storage], uses=tuple(self._uses[storage]))
            for storage in self._candidates
            if storage.bytes and storage is not self._output
        )
