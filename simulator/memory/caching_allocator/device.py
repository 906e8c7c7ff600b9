"""What a process can map of one device's memory: the side of the driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Device:
    """A device of ``total`` bytes, ``taken`` of which others hold.

    ``allowed`` is what ``set_per_process_memory_fraction`` leaves to the allocator (None: not
    called; the allocator then finds out by being refused). Addresses only ever rise: which of two
    free blocks of one size is taken can depend on them, and nothing else.
    """

    total: int
    taken: int = 0
    allowed: int | None = None
    mapped: int = 0
    _next_address: int = 1 << 30

    def map(self, size: int) -> bool:
        """Take ``size`` bytes; False, and nothing taken, where fewer are free."""
        if self.mapped + size > self.total - self.taken:
            return False
        self.mapped += size
        return True

    def unmap(self, size: int) -> None:
        """Give ``size`` bytes back."""
        self.mapped -= size

    def reserve_addresses(self, size: int, alignment: int = 1) -> int:
        """The first of ``size`` addresses that nothing else has, a multiple of ``alignment``."""
        address = -(-self._next_address // alignment) * alignment
        self._next_address = address + size
        return address

    @property
    def free(self) -> int:
        """Bytes that nobody holds, as ``cudaMemGetInfo`` says."""
        return self.total - self.taken - self.mapped
