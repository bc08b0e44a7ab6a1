"""Positions that are too long for one call: their chunks (positions.lua) are read and sent again in several calls.

A script holds up all of Redis while it runs. A call is therefore limited to some thousand chunks, a few milliseconds of
its time. There may be ten times as many chunks above a watermark that stands still.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.offset_set import WIDTH, OffsetSet, Runs, runs
from holdfast.dedup.redis_positions import acquired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.dedup.claims import Acquired, Mark

    #: Chunks as runs of their numbers: the first number, and how many.
    Chunks = Sequence[tuple[int, int]]

_BYTES = WIDTH // 8
#: Chunks that one call reads; and chunks, or runs of offsets, that one call sends.
_READ_AT_ONCE, _SENT_AT_ONCE = 4096, 1024
#: A mark with more chunks is sent by calls of its own, before the call that it belongs to: there, each of its runs
#: would be two arguments.
_INLINE = 16
#: At most this many further calls raise the watermark after a mark; later marks raise it by the rest.
_MOST_LEAPS = 50


class Long(NamedTuple):
    """A reply of acquire.lua without the chunks."""

    known: Acquired
    chunks: int


def acquired_or_long(reply: Sequence[bytes]) -> Acquired | Long:
    """Read the reply to an acquire that was granted."""
    if reply[-2] == b"chunks":
        return Long(acquired(reply[:-2]), int(reply[-1]))
    return acquired(reply)


def read(long: Long, ask: Callable[[Chunks], bytes]) -> OffsetSet | None:
    """Read what is done above the watermark. None = another session owns the position by now.

    Args:
        long: the position without its chunks.
        ask: runs chunks.lua for these chunks; for none, it returns the names of the position's fields.
    """
    found: dict[int, int] = {}
    first, listed = long.known.watermark // WIDTH, False
    pages: Iterator[Chunks] = ([(number, _READ_AT_ONCE)] for number in count(first, _READ_AT_ONCE))
    while len(found) < long.chunks and (page := next(pages, None)) is not None:
        told = ask(page)
        if told == b"F":
            return None
        before = len(found)
        found.update(_numbered(page, told))
        if len(found) == before and not listed:  # a million offsets, none of them done: list the chunks that exist
            names = ask(())
            if names == b"F":
                return None
            numbers = sorted(int(name[2:]) for name in names.split() if name[:2] == b"b:")
            pages, listed = _pages([number for number in numbers if number > page[0][0]], _READ_AT_ONCE), True
    above = OffsetSet.of_chunks(found.items())
    above.remove_below(long.known.watermark)
    return above


def is_long(mark: Mark) -> bool:
    """Whether it is sent in pieces, before the call that it belongs to."""
    return isinstance(mark.offsets, OffsetSet) and len(mark.offsets.chunks) > _INLINE


def pieces(mark: Mark) -> Iterator[list[int | bytes]]:
    """The offsets of a mark for restate.lua, some at a time."""
    chunks = OffsetSet(mark.offsets).chunks
    for page in _pages(sorted(chunks), _SENT_AT_ONCE):
        args: list[int | bytes] = []
        for first, length in page:
            args += [first, b"".join(chunks[first + i].to_bytes(_BYTES, "little") for i in range(length))]
        yield args


def in_parts(mark: Mark) -> list[Mark]:
    """Split a mark that is too long for one call. Nearly all marks stay one."""
    ranges, most = runs(mark.offsets), _SENT_AT_ONCE * WIDTH
    if not ranges or (len(ranges) <= _SENT_AT_ONCE and ranges[-1].stop - ranges[0].start <= most):
        return [mark]
    parts: list[list[range]] = []
    room = 0
    for each in [span[at : at + most] for span in ranges for at in range(0, len(span), most)]:
        if room <= 0:
            parts.append([])
            room = _SENT_AT_ONCE
        parts[-1].append(each)
        room -= len(each) // WIDTH + 1
    return [mark._replace(offsets=Runs(part)) for part in parts]


def leaps(gone: int, before: int, watermark: int) -> int:
    """How often a mark has to be sent again, because one call of positions.lua raises the watermark over a limited
    number of chunks.

    Args:
        gone: the number of known chunks between the two watermarks.
        before: the watermark before the mark.
        watermark: that of the mark.
    """
    return min((watermark - before) // WIDTH // _READ_AT_ONCE, _MOST_LEAPS) if gone > _READ_AT_ONCE else 0


def _numbered(page: Chunks, told: bytes) -> Iterator[tuple[int, int]]:
    """Read the bytes of these chunks. Yields number and bits of each that exists."""
    numbers = (first + i for first, length in page for i in range(length))
    for at, number in zip(range(0, len(told), _BYTES), numbers, strict=True):
        if bits := int.from_bytes(told[at : at + _BYTES], "little"):
            yield number, bits


def _pages(numbers: Sequence[int], at_most: int) -> Iterator[Chunks]:
    """These numbers as runs, at most so many numbers at a time."""
    for at in range(0, len(numbers), at_most):
        yield [(run.start, len(run)) for run in runs(numbers[at : at + at_most])]
