"""Expandable segments: one stretch of addresses a stream and pool, mapped granule by granule."""

from __future__ import annotations

from simulator.memory.caching_allocator.block import Block, Shelf
from simulator.memory.caching_allocator.device import Device


def grow(device: Device, shelf: Shelf, size: int, granule: int) -> Block | None:
    """A free block of at least ``size`` bytes, by mapping what it lacks; None: the device is full.

    What was mapped for it before the device ran out stays mapped.
    """
    candidate = _room(device, shelf, size, granule)
    if not candidate.mapped:
        mapped = _map(device, candidate, min(candidate.size, size), granule)
        if mapped is None:
            return None
        candidate = mapped
    while candidate.size < size:
        after = candidate.next
        assert after is not None
        lacking = min(size - candidate.size, after.size)
        mapped = _map(device, after, lacking, granule)
        if mapped is None:
            return None
        candidate = mapped  # it has taken the free block before it in
    shelf.take(candidate)
    return candidate


def _room(device: Device, shelf: Shelf, size: int, granule: int) -> Block:
    """The lowest run of free and unmapped addresses that holds ``size``, else a new segment."""
    for unmapped in sorted(shelf.unmapped, key=lambda block: block.address):
        before = unmapped.previous
        first = before if before is not None and before.available else unmapped
        if _holds(first, size):
            return first
    space = -(-(device.total + device.total // 8) // granule) * granule
    address = device.reserve_addresses(space, granule)
    block = Block(shelf, address, space, expandable=True, mapped=False)
    shelf.unmapped.add(block)
    return block


def _holds(block: Block | None, size: int) -> bool:
    while size > 0 and block is not None and block.available:
        size -= block.size
        block = block.next
    return size <= 0


def _map(device: Device, block: Block, size: int, granule: int) -> Block | None:
    """Put memory behind the first ``size`` bytes, in whole granules, and join the neighbours."""
    mapped = -(-size // granule) * granule
    if not device.map(mapped):
        return None
    if block.size > mapped:
        block = block.part(mapped)  # the rest stays in ``unmapped``
    else:
        block.shelf.unmapped.remove(block)
    block.mapped = True
    block.merge(block.previous)
    block.merge(block.next)
    block.shelf.put(block)
    return block


def unmap(device: Device, block: Block, granule: int) -> None:
    """Give the whole granules inside a free block back; its ends stay mapped and free."""
    first = -(-block.address // granule) * granule
    last = (block.address + block.size) // granule * granule
    if first >= last:
        return
    shelf = block.shelf
    shelf.take(block)
    if block.address < first:
        shelf.put(block.part(first - block.address))
    if block.size > last - first:
        middle = block.part(last - first)
        shelf.put(block)
        block = middle
    device.unmap(block.size)
    block.mapped = False
    block.merge(block.previous)
    block.merge(block.next)
    if block.split:
        shelf.unmapped.add(block)
