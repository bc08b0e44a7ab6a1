"""Many offsets in little memory: `OffsetSet` as bits, `Runs` as ranges.

What is done above a watermark that stands still may be millions of offsets, in a row or with a gap beside each (a
transaction of one record leaves a marker behind it). As bits in chunks of 256, as Redis keeps them, ten million take 5
MB whatever their gaps, and less where they have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import overload

#: Offsets in a chunk, here and in Redis (scripts/positions.lua).
WIDTH = 256
_FULL = (1 << WIDTH) - 1


class Runs(Sequence[int]):
    """Offsets, ascending, as the ranges of which they are made. Never changed.

    Args:
        ranges: ascending, none of them empty, and without overlaps.
    """

    __slots__ = ("ranges",)

    def __init__(self, ranges: Sequence[range]) -> None:
        self.ranges = ranges

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __iter__(self) -> Iterator[int]:
        for each in self.ranges:
            yield from each

    def __contains__(self, offset: object) -> bool:
        return any(offset in each for each in self.ranges)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return list(self)[index]
        at = index + len(self) if index < 0 else index
        for each in self.ranges:
            if 0 <= at < len(each):
                return each[at]
            at -= len(each)
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"Runs({self.ranges!r})"


class OffsetSet(AbstractSet[int]):  # noqa: PLW1641 - it changes, so it has no hash
    """A set of offsets, iterated in ascending order. One thread changes it; those to whom it was given read it.

    Args:
        offsets: its first ones; of another OffsetSet, a copy.
    """

    __slots__ = ("_chunks", "_low")

    def __init__(self, offsets: Collection[int] = ()) -> None:
        #: Number of a chunk -> its bits, of which one is set at least.
        self._chunks: dict[int, int] = {}
        #: No chunk has a lower number.
        self._low = 0
        if isinstance(offsets, OffsetSet):
            self._chunks, self._low = offsets._chunks.copy(), offsets._low  # noqa: SLF001 - a set's own kind
        elif offsets:
            self.add_all(runs(offsets))

    @classmethod
    def of_chunks(cls, chunks: Iterable[tuple[int, int]]) -> OffsetSet:
        """Make one of chunks: number, and bits."""
        made = cls()
        # One object for all that are full: these are most, and there may be a million.
        made._chunks = {number: _FULL if bits == _FULL else bits for number, bits in chunks if bits}
        made._low = min(made._chunks, default=0)
        return made

    # ---- a set to read
    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self._chunks.get(offset // WIDTH, 0) >> offset % WIDTH & 1 == 1

    def __iter__(self) -> Iterator[int]:
        for each in self.runs():
            yield from each

    def __len__(self) -> int:
        return sum(map(int.bit_count, self._chunks.values()))

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __eq__(self, other: object) -> bool:
        return self._chunks == other._chunks if isinstance(other, OffsetSet) else super().__eq__(other)

    def __repr__(self) -> str:
        return f"OffsetSet({list(self.runs())!r})"

    @property
    def chunks(self) -> Mapping[int, int]:
        """Number -> bits, none of which are zero; in no order."""
        return MappingProxyType(self._chunks)

    @property
    def end(self) -> int:
        """One more than the highest; 0 = it is empty."""
        if not self._chunks:
            return 0
        highest = max(self._chunks)
        return highest * WIDTH + self._chunks[highest].bit_length()

    def runs(self, within: range | None = None) -> Iterator[range]:
        """The ranges without gaps of which it is made, ascending; cut where they leave `within`."""
        start = after = -1
        for number in sorted(self._chunks if within is None else self._touched(within)):
            base, bits = number * WIDTH, self._chunks[number]
            if within is not None:
                bits &= _bits(within, base)
            for first, stop in ((0, WIDTH),) if bits == _FULL else _runs_of(bits):
                if base + first != after:
                    if start >= 0:
                        yield range(start, after)
                    start = base + first
                after = base + stop
        if start >= 0:
            yield range(start, after)

    def gaps(self, within: range) -> list[range]:
        """The offsets of that range that are not in it, as ranges; ascending."""
        found, at = [], within.start
        for run in self.runs(within):
            if at < run.start:
                found.append(range(at, run.start))
            at = run.stop
        return [*found, range(at, within.stop)] if at < within.stop else found

    def has_any(self, offsets: range) -> bool:
        """Whether one of these is in it."""
        return any(self._chunks[number] & _bits(offsets, number * WIDTH) for number in self._touched(offsets))

    def first_missing(self, at: int) -> int:
        """The lowest offset from there on that is not in it."""
        number, bit = divmod(at, WIDTH)
        chunks = self._chunks
        while True:
            missing = ~chunks.get(number, 0) >> bit
            free = (missing & -missing).bit_length() - 1
            if bit + free < WIDTH:
                return number * WIDTH + bit + free
            number, bit = number + 1, 0

    # ---- changes
    def add(self, offset: int) -> None:
        """Add one."""
        self.add_all((range(offset, offset + 1),))

    def add_all(self, ranges: Iterable[range], *, at_least: int = 0) -> None:
        """Add ranges of offsets, none of them empty; without what is lower than `at_least`."""
        chunks = self._chunks
        for each in ranges:
            first, stop = each.start, each.stop
            if first < at_least:
                if stop <= at_least:
                    continue
                first = at_least
            number = first // WIDTH
            if number < self._low or not chunks:
                self._low = number
            base = number * WIDTH
            bit, stop = first - base, stop - base
            while stop > WIDTH:
                chunks[number] = chunks.get(number, 0) | _FULL >> bit << bit if bit else _FULL
                number, bit, stop = number + 1, 0, stop - WIDTH
            chunks[number] = chunks.get(number, 0) | (1 << stop) - (1 << bit)

    def update(self, other: OffsetSet) -> None:
        """Add all of another."""
        chunks = self._chunks
        for number, bits in other.chunks.items():
            chunks[number] = chunks.get(number, 0) | bits
        self._low = min(chunks, default=0)

    def remove(self, offsets: range) -> None:
        """Remove these, as far as they are in it."""
        for number in self._touched(offsets):
            left = self._chunks[number] & ~_bits(offsets, number * WIDTH)
            if left:
                self._chunks[number] = left
            else:
                del self._chunks[number]

    def remove_below(self, offset: int) -> int:
        """Remove all that are lower. Returns how many chunks went with them.

        The work is bounded by what is there, and by how far it goes beyond the last time.
        """
        chunks, number = self._chunks, offset // WIDTH
        before = len(chunks)
        if number > self._low:
            gone = range(self._low, number)
            if len(gone) <= before:
                for each in gone:
                    chunks.pop(each, None)
            elif chunks:
                self._chunks = chunks = {each: bits for each, bits in chunks.items() if each >= number}
            self._low = number
        if bits := chunks.get(number):
            bit = offset - number * WIDTH
            chunks[number] = bits >> bit << bit
            if not chunks[number]:
                del chunks[number]
        return before - len(chunks)

    def _touched(self, offsets: range) -> list[int]:
        """The numbers of chunks that have some of these offsets, or others beside them."""
        numbers, chunks = range(offsets.start // WIDTH, -(-offsets.stop // WIDTH)), self._chunks
        few, many = (numbers, chunks) if len(numbers) <= len(chunks) else (chunks, numbers)
        return [number for number in few if number in many]


def runs(offsets: Collection[int]) -> Sequence[range]:
    """Offsets as ranges, one for each unbroken run.

    Never anything that is not in `offsets`, even if these are not ascending: a record that is marked and was not
    handled would be lost.
    """
    if isinstance(offsets, Runs):
        return offsets.ranges
    if isinstance(offsets, OffsetSet):
        return list(offsets.runs())
    if not offsets:
        return ()
    if isinstance(offsets, range) and offsets.step == 1:
        return (offsets,)
    found: list[range] = []
    ordered = sorted(set(offsets))
    first = after = ordered[0]
    for offset in ordered:
        if offset != after:
            found.append(range(first, after))
            first = offset
        after = offset + 1
    return [*found, range(first, after)]


def _bits(offsets: range, base: int) -> int:
    """The offsets that are in the chunk which begins at `base`, as its bits."""
    first, after = max(offsets.start - base, 0), min(offsets.stop - base, WIDTH)
    return (1 << after) - 1 >> first << first if after > first else 0


def _runs_of(bits: int) -> Iterator[tuple[int, int]]:
    """Unbroken runs of bits that are set: the first, and the one after the last."""
    at = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        ones = (~bits & bits + 1).bit_length() - 1
        yield at + skip, at + skip + ones
        bits, at = bits >> ones, at + skip + ones
