"""A sequence whose items are made when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Lazy(Sequence[T], Generic[T]):
    """``length`` items, each made once by ``make(index)``.

    >>> squares = Lazy(4, lambda index: index * index)
    >>> squares[3], squares[-1], squares[1:3], list(squares)
    (9, 9, (1, 4), [0, 1, 4, 9])
    """

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        """Nothing is made yet."""
        self._made: list[T | None] = [None] * length
        self._make = make

    def __len__(self) -> int:
        """How many items there are, made or not."""
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """The item, or a tuple of those in a slice. Raises IndexError."""
        if isinstance(index, slice):
            return tuple([self[i] for i in range(len(self))[index]])
        item = self._made[index]
        if item is None:
            item = self._made[index] = self._make(range(len(self))[index])
        return item

    def __iter__(self) -> Iterator[T]:
        """All of them, in order."""
        return (self[index] for index in range(len(self)))
