"""bitsandbytes' optimizers: AdamW and Lion with states of 32 or 8 bits, in managed memory or not.

Source: bitsandbytes/optim/optimizer.py, adamw.py, lion.py (0.50). A state of at least 4096 elements
is one byte an element and an fp32 maximum a block of 256; the two quantisation maps are shared by
all parameters of an optimizer. Smaller ones are fp32. Paged states of at least 1e5 elements lie in
managed memory (``cudaMallocManaged``), which torch's allocator does not see.

Hugging Face's Trainer keeps the states of ``nn.Embedding`` weights in 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.optimizer.op import Group, Op, Ops, Optimizer
from simulator.lowering.optimizer.tensors import element_wise, state, zeros
from simulator.lowering.shards import Shard
from simulator.plan.plan import Hyper, Precision

SMALLEST_8BIT, BLOCK, MAP_ENTRIES = 4096, 256, 256
SMALLEST_PAGED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How many states of how many bits, and whether they are paged."""

    states: int
    bits: int
    paged: bool = False


KINDS = {
    "adamw-8bit": Kind(states=2, bits=8),
    "adamw-paged-8bit": Kind(states=2, bits=8, paged=True),
    "lion": Kind(states=1, bits=32),
    "lion-8bit": Kind(states=1, bits=8),
}


def blockwise(name: str, precision: Precision, hyper: Hyper) -> Optimizer:
    """One kernel a parameter; a state is born just before its first update."""
    one = _BitsAndBytes(name, KINDS[name], precision, hyper)
    return (Group(name=name, looped=True, once=one.maps, step=one.step),)


class _BitsAndBytes:
    def __init__(self, name: str, kind: Kind, precision: Precision, hyper: Hyper) -> None:
        self.name, self.kind, self.precision = name, kind, precision
        self.embeddings_32bit = hyper.embeddings_32bit

    def maps(self, shards: Sequence[Shard]) -> Ops:
        """One a state, when the first parameter with states of 8 bits is met."""
        first = next((shard for shard in shards if self._is_8bit(shard)), None)
        if first is None:
            return ()
        return [
            Op(makes=state(first, f"qmap{number}", DType.FP32, (MAP_ENTRIES,)), stays=True)
            for number in range(1, self.kind.states + 1)
        ]

    def step(self, shard: Shard, first: bool) -> Ops:
        """The first step makes the states; each reads and writes them, and the parameter."""
        states = self._states(shard)
        kept = sum(op.makes[1].requested for op in states if op.makes)
        kept += self._managed(shard) * self.kind.states
        parameter = shard.numel * self.precision.parameters.itemsize
        gradient = shard.numel * self.precision.gradients.itemsize
        read, written = parameter + gradient + kept, parameter + kept
        update = Op(work=element_wise(f"{self.name}.update", read, written))
        return (*states, update) if first else (update,)

    def _states(self, shard: Shard) -> list[Op]:
        """All that are not in managed memory; what is there is filled alone."""
        numbers = range(1, self.kind.states + 1)
        managed, dtype = self._managed(shard), self._dtype(shard)
        fill = Elementwise(name="zeros managed", kind="copy", read=0, written=managed)
        made = [Op(work=fill) if managed else zeros(shard, f"state{n}", dtype) for n in numbers]
        if not self._is_8bit(shard):
            return made
        blocks = (ceil(shard.numel / BLOCK),)
        return made + [zeros(shard, f"absmax{n}", DType.FP32, blocks) for n in numbers]

    def _managed(self, shard: Shard) -> int:
        """Bytes of one state in managed memory."""
        if not self.kind.paged or shard.numel < SMALLEST_PAGED:
            return 0
        return shard.numel * self._dtype(shard).itemsize

    def _dtype(self, shard: Shard) -> DType:
        return DType.UINT8 if self._is_8bit(shard) else DType.FP32

    def _is_8bit(self, shard: Shard) -> bool:
        if self.kind.bits != 8 or shard.numel < SMALLEST_8BIT:
            return False
        embedding = shard.weight.module == "embed" and len(shard.weight.shape) == 2
        return not (embedding and self.embeddings_32bit)
