"""A stretch of addresses, and a stream's free stretches of one pool in the order of best fit."""

from __future__ import annotations

from bisect import bisect_left

ADDRESS_BITS = 56
"""Room for addresses below sizes in one integer, so that keys order as (size, address)."""


class Pool:
    """The small pool or the large one. ``searches``: how often a free block was looked for."""

    __slots__ = ("searches", "shelves", "small")

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.searches = 0
        self.shelves: dict[int, Shelf] = {}

    def shelf(self, stream: int) -> Shelf:
        """The stream's part: streams never share what is cached."""
        found = self.shelves.get(stream)
        if found is None:
            found = self.shelves[stream] = Shelf(self, stream)
        return found

    def free_blocks(self) -> list[Block]:
        """Every free block, stream by stream."""
        return [block for _, shelf in sorted(self.shelves.items()) for block in shelf.blocks]


class Shelf:
    """Free blocks of one stream and pool: ``blocks[i]`` has the i-th (size, address), ``keys[i]``.

    ``unmapped`` are the unmapped stretches of its expandable segments.
    """

    __slots__ = ("blocks", "keys", "pool", "stream", "unmapped")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool, self.stream = pool, stream
        self.keys: list[int] = []
        self.blocks: list[Block] = []
        self.unmapped: set[Block] = set()

    def put(self, block: Block) -> None:
        """A block becomes free; its age begins."""
        block.free_since = self.pool.searches
        key = block.size << ADDRESS_BITS | block.address
        index = bisect_left(self.keys, key)
        self.keys.insert(index, key)
        self.blocks.insert(index, block)

    def take(self, block: Block) -> None:
        """Out it goes; its size and address are those it was put in with."""
        index = bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)
        del self.keys[index], self.blocks[index]

    def fit(self, size: int) -> int:
        """Index of the smallest block of at least ``size`` bytes; ``len(blocks)``: none."""
        return bisect_left(self.keys, size << ADDRESS_BITS)


class Block:
    """Bytes at one address, between two neighbours of its segment.

    ``mapped`` False: addresses of an expandable segment without memory behind them. ``uses``: other
    streams that it was recorded on; ``events``: those of them not known to have passed, after free.
    """

    __slots__ = (
        "address",
        "allocated",
        "events",
        "expandable",
        "free_since",
        "mapped",
        "next",
        "previous",
        "requested",
        "shelf",
        "size",
        "uses",
    )

    def __init__(
        self, shelf: Shelf, address: int, size: int, *, expandable: bool, mapped: bool = True
    ) -> None:
        self.shelf, self.address, self.size = shelf, address, size
        self.expandable, self.mapped = expandable, mapped
        self.previous: Block | None = None
        self.next: Block | None = None
        self.allocated = False
        self.requested = self.events = self.free_since = 0
        self.uses: list[int] | None = None

    @property
    def split(self) -> bool:
        """Whether its segment holds other blocks too."""
        return self.previous is not None or self.next is not None

    @property
    def available(self) -> bool:
        """Neither in use nor waiting for another stream."""
        return not (self.allocated or self.events or self.uses)

    @property
    def reach(self) -> int:
        """Its size, with the unmapped addresses that follow."""
        after = self.next
        return self.size + (after.size if after is not None and not after.mapped else 0)

    def part(self, size: int) -> Block:
        """Cut the first ``size`` bytes off, as a block before this one."""
        first = Block(
            self.shelf, self.address, size, expandable=self.expandable, mapped=self.mapped
        )
        before = self.previous
        first.previous, first.next = before, self
        if before is not None:
            before.next = first
        self.previous = first
        self.address += size
        self.size -= size
        return first

    def merge(self, other: Block | None) -> None:
        """Take a neighbour in, where it is as free as this block and like it mapped or not."""
        if (
            other is None
            or other.allocated
            or other.events
            or other.uses
            or other.mapped is not self.mapped
        ):
            return
        if other.mapped:
            other.shelf.take(other)
        else:
            other.shelf.unmapped.remove(other)
        if self.previous is other:
            before = self.previous = other.previous
            self.address = other.address
            if before is not None:
                before.next = self
        else:
            after = self.next = other.next
            if after is not None:
                after.previous = self
        self.size += other.size
