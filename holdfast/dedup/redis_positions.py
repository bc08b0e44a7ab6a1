"""Positions at Redis: their hash (scripts/positions.lua) as calls send and read it, and all that their owner knows.

A script holds up all of Redis while it runs. A call is therefore limited to some thousand chunks of a position, a few
milliseconds of its time. There may be ten times as many chunks above a watermark that stands still: a long position is
read, and sent again, in several calls.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.claims import NEVER, Acquired, InHand, Mark, Since, Standing, Verdict
from holdfast.dedup.offset_set import WIDTH, OffsetSet, Runs, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from holdfast.dedup.claims import AskInHand, Drop, LetGo
    from holdfast.dedup.redis_keys import Args

    #: Chunks as runs of their numbers: the first number, and how many.
    Chunks = Sequence[tuple[int, int]]

_EXACT = 2**53  # numbers in Lua are doubles
_BYTES = WIDTH // 8
#: Chunks that one call reads; and chunks, or runs of offsets, that one call sends.
_READ_AT_ONCE, _SENT_AT_ONCE = 4096, 1024
#: A mark with more chunks is sent by calls of its own, before the call that it belongs to: there, each of its runs
#: would be two arguments.
_INLINE = 16
#: At most this many further calls raise the watermark after a mark; later marks raise it by the rest.
_MOST_LEAPS = 50


def check_offsets(offsets: Collection[int]) -> None:
    """Refuse offsets that Lua cannot count with: negative ones, and those from 2^53 on.

    Raises:
        ValueError: naming the offset.
    """
    if not offsets:
        return
    # Nearly always these are ranges: their ends are enough.
    if isinstance(offsets, Runs):
        lowest, highest = offsets.ranges[0].start, offsets.ranges[-1].stop - 1
    elif isinstance(offsets, range):
        lowest, highest = sorted((offsets[0], offsets[-1]))
    elif isinstance(offsets, OffsetSet):
        lowest, highest = 0, offsets.end - 1
    else:
        lowest, highest = min(offsets), max(offsets)
    if not (lowest >= 0 and highest < _EXACT):
        raise ValueError(f"offsets between {lowest} and {highest}: a position holds those from 0 to 2^53 - 1")


def acquired(reply: Sequence[bytes]) -> Acquired:
    """Read a position from its hash. Args: reply: fields and values in turn."""
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    watermark = int(fields.get(b"w", b"0"))
    done = OffsetSet.of_chunks(
        (int(field[2:]), int.from_bytes(chunk, "little")) for field, chunk in fields.items() if field[:2] == b"b:"
    )
    done.remove_below(watermark)  # bits below may still be set; they have no meaning
    running = (int(entry.partition(b"=")[0]) for entry in fields.get(b"running", b"").split())
    born_ms, again = int(fields.get(b"born", b"0")), int(fields.get(b"again", b"0"))
    begun = b"w" in fields
    since = Since(*map(int, fields.get(b"since", b"0:0").split(b":")))
    return Acquired(int(fields[b"epoch"]), watermark, done, frozenset(running), born_ms, again, begun, since)


def run_args(mark: Mark) -> Args:
    """The offsets of a mark as arguments: the number of runs, then first offset and length of each."""
    found = runs(mark.offsets)
    return [len(found), *(number for run in found for number in (run.start, len(run)))]


def fenced_offsets(numbers: Sequence[int]) -> frozenset[int]:
    """Read the fenced offsets of a reply: first offset and length of each run, in turn."""
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return frozenset(offset for first, length in pairs for offset in range(first, first + length))


def polled(poll: AskInHand, reply: bytes) -> InHand | Verdict:
    """Read the reply to a poll: `FENCED`, or the state of each offset."""
    if reply == b"F":
        return Verdict.FENCED
    states = list(zip(poll.offsets, reply.decode(), strict=True))
    return InHand(
        done=frozenset(offset for offset, state in states if state == "d"),
        yours=frozenset(offset for offset, state in states if state == "y"),
    )


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
        chunks = ask(page)
        if chunks == b"F":
            return None
        before = len(found)
        found.update(_numbered(page, chunks))
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


def _numbered(page: Chunks, reply: bytes) -> Iterator[tuple[int, int]]:
    """Read the bytes of these chunks. Yields number and bits of each that exists."""
    numbers = (first + i for first, length in page for i in range(length))
    for at, number in zip(range(0, len(reply), _BYTES), numbers, strict=True):
        if bits := int.from_bytes(reply[at : at + _BYTES], "little"):
            yield number, bits


def _pages(numbers: Sequence[int], at_most: int) -> Iterator[Chunks]:
    """These numbers as runs, at most so many numbers at a time."""
    for at in range(0, len(numbers), at_most):
        yield [(run.start, len(run)) for run in runs(numbers[at : at + at_most])]


class Ended(NamedTuple):
    """The end of an ownership, and all that is done in it."""

    let: LetGo
    known: Standing | None


class Dropping(NamedTuple):
    """A drop that is about to be sent."""

    drop: Drop
    since: Since
    seen: int  #: the end of the offsets that are known as done or running; 0 = not known


class Owned:
    """The marks of one ownership, and those that its acquire has returned: a watermark, and what is done above it.

    Args:
        epoch: of the ownership.
        found: the reply to its acquire.
    """

    __slots__ = ("_above", "_again", "_ran", "_watermark", "epoch", "since")

    def __init__(self, epoch: int, found: Acquired | None = None) -> None:
        self.epoch = epoch
        self._watermark, self._above, self._ran = 0, OffsetSet(), 0
        self._again, self.since = 0, NEVER
        if found:
            self._watermark, self._above = found.watermark, OffsetSet(found.done)
            self._ran = max(found.running, default=-1) + 1
            self._again, self.since = found.again, found.since

    @classmethod
    def dropped(cls, drop: Drop, since: Since, again: int) -> Owned:
        """An ownership after a drop: what was known before is forgotten on purpose."""
        made = cls(drop.epoch)
        made._watermark, made._again, made.since = drop.offset, again, since
        return made

    def add(self, mark: Mark) -> int:
        """Note one more. Returns how often its watermark has to be sent again (see `leaps`)."""
        more = 0
        if mark.watermark > self._watermark:
            if self._above:
                more = leaps(self._above.remove_below(mark.watermark), self._watermark, mark.watermark)
            self._watermark = mark.watermark
        ranges = runs(mark.offsets)
        if ranges and ranges[-1].stop > self._watermark:
            self._above.add_all(ranges, at_least=self._watermark)
        return more

    @property
    def seen(self) -> int:
        """The end of the offsets that are known as done or running."""
        return max(self._watermark, self._above.end, self._ran)

    def all(self, partition: str) -> Standing:
        """All marks as one."""
        mark = Mark(partition, self.epoch, self._watermark, OffsetSet(self._above))
        return Standing(mark, self.since, self._again)
