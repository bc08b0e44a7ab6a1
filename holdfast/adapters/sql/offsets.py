"""Offsets above a watermark as bytes: of each unbroken run its distance from the end of the one before (from the
watermark, for the first), and its length; both in base 128, the lowest digits first, the top bit set in all but the
last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.offset_set import OffsetSet

if TYPE_CHECKING:
    from collections.abc import Iterator


def packed(watermark: int, done: OffsetSet) -> bytes:
    """Write them. Args: done: none of them below the watermark."""
    found, at = bytearray(), watermark
    for run in done.runs():
        for number in (run.start - at, run.stop - run.start):
            left = number
            while left > 0x7F:
                found.append(left & 0x7F | 0x80)
                left >>= 7
            found.append(left)
        at = run.stop
    return bytes(found)


def unpacked(watermark: int, data: bytes) -> OffsetSet:
    """Read what `packed` has written."""
    done, at = OffsetSet(), watermark
    numbers = _numbers(data)
    for distance in numbers:
        start = at + distance
        at = start + next(numbers)
        done.add_all((range(start, at),))
    return done


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte <= 0x7F:
            yield number
            number = shift = 0
