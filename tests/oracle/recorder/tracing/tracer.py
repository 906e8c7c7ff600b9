"""Watching storages: every allocation, resize and free, in the order in which the host causes them.

The caching allocator acts when the host calls it, so this order and the sizes are all that
``memory_allocated`` depends on. What a kernel's launcher allocates and frees inside one call is not
seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._guards import active_fake_mode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recorder.fake.routing import UNKNOWABLE, Routing
from recorder.fake.streams import DEVICE
from recorder.tracing.events import Event, Mark, Recording, Storage, rounded
from recorder.tracing.hypothetical import Depth, hypothetical

BY_PHASE = {"fwd": "activation", "bwd": "temp", "opt": "opt_temp", "clip": "opt_temp"}
"""What an allocation is where nobody says: by the first word of the phase."""

IN_PLACE = {
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
    torch.ops.aten.scatter.src: torch.ops.aten.scatter_.src,
    torch.ops.aten.scatter_add.default: torch.ops.aten.scatter_add_.default,
}
"""What autograd's own formulas write into fresh zeros, and copy only for subclasses of Tensor."""

_real_resize = torch.UntypedStorage.resize_


class Tracer(TorchDispatchMode):
    """Records while it is entered.

    ``phase`` and ``module`` say where the run is; ``assumed`` what is allocated there, None for
    what the phase says.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recording = Recording()
        self.phase, self.module = "init", ""
        self.assumed: str | None = None
        self._live = self._storages = 0
        self._known: weakref.WeakKeyDictionary[torch.UntypedStorage, Storage]
        self._known = weakref.WeakKeyDictionary()
        self._mode: Any = None
        self._hypothetical = Depth()
        self.routing = Routing()
        self._patches = ExitStack()

    def __enter__(self) -> Tracer:
        self._mode = active_fake_mode()
        patch = self._patches.enter_context
        tracer = self

        def resize(storage: torch.UntypedStorage, size: int) -> None:
            _real_resize(storage, size)
            tracer._see(storage, "resize_")

        patch(mock.patch.object(torch.UntypedStorage, "resize_", resize))
        self._hypothetical = patch(hypothetical())
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._patches.close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper, such as DTensor, comes back with its inner tensors
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        if func in UNKNOWABLE:
            func = partial(UNKNOWABLE[func], self.routing)
        if self.phase.startswith("bwd"):
            func = IN_PLACE.get(func, func)
        result = func(*args, **(kwargs or {}))
        if self._hypothetical.depth or active_fake_mode() is not self._mode:
            return result
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.device.type == "cuda":
                self._see(leaf.untyped_storage(), str(func))
        return result

    @contextmanager
    def category(self, name: str | None) -> Iterator[None]:
        """What is allocated meanwhile is of this category (None: of the phase's)."""
        before, self.assumed = self.assumed, name
        try:
            yield
        finally:
            self.assumed = before

    def tag(self, tensor: Tensor, category: str) -> None:
        """Say what a tensor is, or that it was there before recording began."""
        while hasattr(tensor, "__tensor_flatten__"):
            tensor = getattr(tensor, tensor.__tensor_flatten__()[0][0])
        if tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        if storage in self._known:
            self._known[storage].category = category
        else:
            with self.category(category):
                self._see(storage, "external")

    def storage_of(self, tensor: Tensor) -> Storage:
        """What is known of a tensor's storage.

        Raises:
            KeyError: nothing is: it was allocated before recording began, or not at all.
        """
        return self._known[tensor.untyped_storage()]

    def mark(self, name: str) -> None:
        """Note what is live here."""
        events = len(self.recording.events)
        self.recording.marks.append(Mark(name=name, bytes=self._live, event=events))

    def _see(self, storage: torch.UntypedStorage, op: str) -> None:
        """Note a storage that is new or has another size than before."""
        known = self._known.get(storage)
        if known is None:
            default = BY_PHASE.get(self.phase.partition(":")[0], "other")
            known = Storage(self._storages, self.assumed or default)
            self._storages += 1
            self._known[storage] = known
            weakref.finalize(storage, self._resize, known, 0, "free").atexit = False
        elif op != "resize_":
            return
        self._resize(known, rounded(storage.nbytes()), op)

    def _resize(self, storage: Storage, size: int, op: str) -> None:
        if storage.bytes:
            self._note(storage, -storage.bytes, op)
        if size:
            self._note(storage, size, op)
        storage.bytes = size

    def _note(self, storage: Storage, change: int, op: str) -> None:
        self._live += change
        event = Event(
            storage=storage,
            change=change,
            stream=DEVICE.current.name,
            op=op,
            module=self.module,
            phase=self.phase,
        )
        self.recording.events.append(event)
