"""``DeviceCachingAllocator``: requests in, blocks of cached segments out, counters along."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from simulator.memory.caching_allocator import expandable
from simulator.memory.caching_allocator.block import Block, Pool, Shelf
from simulator.memory.caching_allocator.device import Device
from simulator.memory.caching_allocator.settings import MIN_BLOCK, SMALL_SIZE, Settings

NO_LIMIT = 1 << 62
"""Larger than any block: what ``max_split_size`` is where it is not set."""


@dataclass(slots=True)
class Counters:
    """The allocator's own counters, in bytes, as ``torch.cuda.memory_stats`` gives them.

    ``allocated``: whole blocks in use; ``active``: those and the freed ones that wait for another
    stream; ``requested``: what was asked for, of the active ones; ``reserved``: mapped segments.
    """

    allocated: int = 0
    active: int = 0
    requested: int = 0
    reserved: int = 0
    segments: int = 0
    retries: int = 0


class OutOfMemoryError(Exception):
    """No block and no memory for ``requested`` bytes.

    The message is PyTorch's figures: what was free on the device, and reserved but not allocated.
    """

    def __init__(self, requested: int, free: int, counters: Counters) -> None:
        self.requested, self.free = requested, free
        self.reserved, self.allocated = counters.reserved, counters.allocated
        super().__init__(f"{requested} bytes, {free} free, {counters.reserved} reserved")


class CachingAllocator:
    """The caching allocator of one process on one device.

    ``passed(stream)`` says whether the work that was queued on a stream when a block was freed is
    done by now; without it every event has passed when it is looked at, which is at the next
    request.
    """

    def __init__(
        self,
        settings: Settings,
        device: Device,
        passed: Callable[[int, object], bool] | None = None,
    ) -> None:
        self.settings, self.device = settings, device
        self.counters = Counters()
        self.pools = Pool(small=True), Pool(small=False)
        self._waiting: dict[int, deque[tuple[object, Block]]] = {}
        self._passed = passed
        self._collects = device.allowed is not None and settings.garbage_collection_threshold > 0
        self._max_split = settings.max_split_size or NO_LIMIT

    def malloc(self, requested: int, stream: int) -> Block:
        """Serve ``requested`` bytes (more than 0) on ``stream``.

        Raises:
            OutOfMemoryError: even after everything cached was given back.
        """
        if self._waiting:
            self._return_passed()
        size = self.settings.round_size(requested)
        shelf = self.pools[size > SMALL_SIZE].shelf(stream)
        block = self._cached(shelf, size)
        if block is None:
            if self._collects:
                self._collect_garbage()
            block = self._mapped(shelf, size)
            if block is None:
                raise OutOfMemoryError(requested, self.device.free, self.counters)
        rest = block.size - size
        if rest >= MIN_BLOCK and self._splits(shelf.pool, size, rest):
            left, block = block, block.part(size)
            shelf.put(left)
        block.allocated, block.requested = True, requested
        counters = self.counters
        counters.allocated += block.size
        counters.active += block.size
        counters.requested += requested
        return block

    def free(self, block: Block, at: object = None) -> None:
        """The last reference goes; ``at`` is handed to ``passed`` to say when that was."""
        block.allocated = False
        self.counters.allocated -= block.size
        if not block.uses:
            self._release(block)
            return
        uses, block.uses = block.uses, None
        for stream in uses:
            block.events += 1
            self._waiting.setdefault(stream, deque()).append((at, block))

    def record_stream(self, block: Block, stream: int) -> None:
        """``stream`` uses the block too: freed, it waits until that stream has passed."""
        if stream == block.shelf.stream:
            return
        if block.uses is None:
            block.uses = []
        if stream not in block.uses:
            block.uses.append(stream)

    def empty_cache(self) -> None:
        """``torch.cuda.empty_cache``: wait for every event, give every whole segment back."""
        self._synchronise()
        for pool in reversed(self.pools):
            self._give_back(pool)

    def _cached(self, shelf: Shelf, size: int) -> Block | None:
        """The best fit among the stream's free blocks; that one candidate alone is tried."""
        if self._collects:
            shelf.pool.searches += 1
        blocks, index = shelf.blocks, shelf.fit(size)
        if index == len(blocks):
            return None
        best = blocks[index]
        if best.expandable:
            for following in blocks[index + 1 :]:
                if following.reach >= best.reach:
                    break
                best = following
        limit = self._max_split
        if size < limit <= best.size:
            return None
        if size >= limit and best.size >= size + self.settings.max_non_split_rounding:
            return None
        shelf.take(best)
        return best

    def _mapped(self, shelf: Shelf, size: int) -> Block | None:
        """A new segment; where there is no room, give cached ones back first."""
        block = self._new(shelf, size)
        if block is None and self._give_oversize_back(shelf, size):
            block = self._new(shelf, size)
        if block is None:
            self.empty_cache()
            self.counters.retries += 1
            block = self._new(shelf, size)
        return block

    def _new(self, shelf: Shelf, size: int) -> Block | None:
        asked = self.settings.segment_size(size)
        allowed, device = self.device.allowed, self.device
        if allowed is not None and device.mapped + asked > allowed:
            return None
        if self.settings.expandable_segments:
            granule = self.settings.granule(small=shelf.pool.small)
            block = expandable.grow(device, shelf, size, granule)
        elif device.map(asked):
            block = Block(shelf, device.reserve_addresses(asked), asked, expandable=False)
            self.counters.segments += 1
        else:
            block = None
        self.counters.reserved = device.mapped
        return block

    def _splits(self, pool: Pool, size: int, rest: int) -> bool:
        if pool.small or self.settings.expandable_segments:
            return True
        return size < self._max_split and rest > SMALL_SIZE

    def _release(self, block: Block) -> None:
        """A block returns to its pool, joined with free neighbours."""
        self.counters.active -= block.size
        self.counters.requested -= block.requested
        block.merge(block.previous)
        block.merge(block.next)
        block.shelf.put(block)

    def _return_passed(self) -> None:
        """``process_events``: each stream's blocks in order, up to the first that must wait."""
        for stream, waiting in list(self._waiting.items()):
            while waiting and (self._passed is None or self._passed(stream, waiting[0][0])):
                self._pass(waiting.popleft()[1])
            if not waiting:
                del self._waiting[stream]

    def _synchronise(self) -> None:
        for waiting in self._waiting.values():
            for _, block in waiting:
                self._pass(block)
        self._waiting.clear()

    def _pass(self, block: Block) -> None:
        block.events -= 1
        if not block.events:
            self._release(block)

    def _give_back(self, pool: Pool) -> None:
        """Every free segment that is not split, and the whole granules of expandable ones."""
        granule = self.settings.granule(small=pool.small)
        for block in pool.free_blocks():
            if block.expandable:
                expandable.unmap(self.device, block, granule)
            elif not block.split:
                self._drop(block)
        self.counters.reserved = self.device.mapped

    def _drop(self, block: Block) -> None:
        """cudaFree of a whole segment."""
        block.shelf.take(block)
        self.device.unmap(block.size)
        self.counters.segments -= 1
        self.counters.reserved = self.device.mapped

    def _give_oversize_back(self, shelf: Shelf, size: int) -> bool:
        """With ``max_split_size``: drop the smallest segment that would do, or several below."""
        limit = self.settings.max_split_size
        if limit is None:
            return False
        wanted = max(size, limit)
        index = shelf.fit(wanted)
        if index < len(shelf.blocks) and not shelf.blocks[index].expandable:
            self._drop(shelf.blocks[index])
            return True
        released = 0
        for block in reversed(shelf.blocks[:index]):
            if released >= wanted or block.size < limit:
                break
            if not block.expandable:
                released += block.size
                self._drop(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Drop free segments of the large pool, the oldest first, down to the threshold."""
        assert self.device.allowed is not None
        threshold = int(self.settings.garbage_collection_threshold * self.device.allowed)
        excess = self.device.mapped - threshold
        if excess <= 0:
            return
        pool = self.pools[1]
        whole = [block for block in pool.free_blocks() if not block.split]
        age = sum(pool.searches - block.free_since for block in whole)
        count, dropped = len(whole), True
        while excess > 0 and dropped and count:
            mean, dropped = age / count, False
            for block in [b for b in pool.free_blocks() if not b.split and not b.expandable]:
                old = pool.searches - block.free_since
                if old >= mean:
                    dropped = True
                    excess -= block.size
                    age -= old
                    count -= 1
                    self._drop(block)
