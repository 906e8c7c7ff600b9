"""``PYTORCH_CUDA_ALLOC_CONF``: what it may say, and the sizes that follow from it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from simulator.errors import UserError

KIB, MIB = 1 << 10, 1 << 20

MIN_BLOCK = 512
"""``kMinBlockSize``: every size is a multiple of it."""

SMALL_SIZE = MIB
"""``kSmallSize``: the largest size that the small pool serves."""

SMALL_BUFFER = 2 * MIB
"""``kSmallBuffer``: a segment of the small pool."""

MIN_LARGE_ALLOC = 10 * MIB
"""``kMinLargeAlloc``: a smaller size of the large pool gets a segment of ``large_segment``."""

ROUND_LARGE = 2 * MIB
"""``kRoundLarge``: from there on a segment is a multiple of it."""

INTERVALS = 16
"""``kRoundUpPowerOfTwoIntervals``: divisions from 1 MiB, 2 MiB ... to 32 GiB and above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The allocator's settings, in bytes; the defaults are PyTorch's.

    ``divisions[i]`` splits the powers of two from ``2**(20 + i)`` bytes on (0: no rounding up).
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = 20 * MIB
    garbage_collection_threshold: float = 0.0
    large_segment: int = 20 * MIB
    divisions: tuple[int, ...] = (0,) * INTERVALS

    def round_size(self, requested: int) -> int:
        """The block that a request of ``requested`` bytes is served with, before any split.

        >>> Settings().round_size(1), Settings().round_size(513)
        (512, 1024)
        >>> Settings.parse("roundup_power2_divisions:4").round_size(1200 * 1024) // 1024
        1280
        """
        if not any(self.divisions):
            return -(-requested // MIN_BLOCK) * MIN_BLOCK
        divisions = self.divisions[_interval(requested)]
        if divisions > 1 and requested > MIN_BLOCK * divisions:
            return _next_division(requested, divisions)
        return -(-requested // MIN_BLOCK) * MIN_BLOCK

    def segment_size(self, size: int) -> int:
        """The bytes asked of the driver when no cached block serves ``size`` (rounded) bytes."""
        if size <= SMALL_SIZE:
            return SMALL_BUFFER
        if size < MIN_LARGE_ALLOC:
            return self.large_segment
        return -(-size // ROUND_LARGE) * ROUND_LARGE

    def granule(self, *, small: bool) -> int:
        """What an expandable segment maps at a time."""
        return SMALL_BUFFER if small else self.large_segment

    @staticmethod
    def parse(text: str) -> Settings:
        """Read ``text`` as PyTorch reads ``PYTORCH_CUDA_ALLOC_CONF`` (empty: the defaults).

        Raises:
            UserError: an option that there is not, or a value that PyTorch refuses.
        """
        found: dict[str, object] = {}
        for option, value in _options(text):
            found.update(_read(option, value))
        return Settings(**found)  # type: ignore[arg-type]


OPTIONS = (
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "roundup_power2_divisions",
)


def _options(text: str) -> list[tuple[str, str]]:
    """``option:value`` pairs; commas inside ``[...]`` belong to the value."""
    pairs = []
    for part in re.split(r",(?![^\[]*\])", text):
        if not part.strip():
            continue
        option, colon, value = part.partition(":")
        if not colon:
            raise UserError(f"allocator: {part.strip()!r} is no `option:value`")
        pairs.append((option.strip(), value.strip()))
    return pairs


def _read(option: str, value: str) -> dict[str, object]:
    match option:
        case "expandable_segments":
            return {option: _boolean(option, value)}
        case "max_split_size_mb":
            return {"max_split_size": _whole(option, value, low=20) * MIB}
        case "max_non_split_rounding_mb":
            return {"max_non_split_rounding": _whole(option, value, low=21) * MIB}
        case "large_segment_size_mb":
            return {"large_segment": _whole(option, value, low=11) * MIB}
        case "garbage_collection_threshold":
            return {option: _share(option, value)}
        case "roundup_power2_divisions":
            return {"divisions": _divisions(option, value)}
        case "backend" if value == "native":
            return {}
    raise UserError(_unknown(option, value))


def _unknown(option: str, value: str) -> str:
    if option == "backend":
        return f"allocator: backend:{value} is not modelled; native is"
    near = difflib.get_close_matches(option, OPTIONS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(OPTIONS)}"
    return f"allocator: no option {option!r}{hint}"


def _boolean(option: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise UserError(f"allocator: {option} is True or False, found {value!r}")
    return value == "True"


def _whole(option: str, value: str, low: int) -> int:
    if not re.fullmatch(r"\d{1,9}", value) or int(value) < low:
        raise UserError(f"allocator: {option} is a whole number of at least {low}, found {value!r}")
    return int(value)


def _share(option: str, value: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", value) or not 0 < float(value) < 1:
        raise UserError(f"allocator: {option} lies between 0 and 1, found {value!r}")
    return float(value)


def _divisions(option: str, value: str) -> tuple[int, ...]:
    """One number for all sizes, or ``[256:1,512:2,>:4]`` (sizes in MiB, powers of two).

    As PyTorch reads the list: sizes between two that are named are not rounded up at all.
    """
    if not value.startswith("["):
        return (_power(option, value),) * INTERVALS
    found = [0] * INTERVALS
    last = 0
    for number, pair in enumerate(value.strip("[]").split(",")):
        size, _, divisions = (text.strip() for text in pair.partition(":"))
        count = _power(option, divisions)
        if size == ">":
            found[last + 1 :] = [count] * (INTERVALS - last - 1)
            continue
        last = min(_power(option, size).bit_length() - 1, INTERVALS - 1)
        if number == 0:
            found[:last] = [count] * last
        found[last] = count
    return tuple(found)


def _power(option: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value) or int(value) & (int(value) - 1) or int(value) == 0:
        raise UserError(f"allocator: {option} takes powers of two, found {value!r}")
    return int(value)


def _interval(size: int) -> int:
    return min(max(size.bit_length() - 1 - 20, 0), INTERVALS - 1)


def _next_division(size: int, divisions: int) -> int:
    """Round up to the next of ``divisions`` steps between two powers of two."""
    if size & (size - 1) == 0:
        return size
    step = (1 << (size.bit_length() - 1)) // divisions
    return -(-size // step) * step
