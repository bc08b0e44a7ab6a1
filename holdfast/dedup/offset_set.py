"""Many offsets in little memory: `OffsetSet` as bits, `Runs` as ranges.

Millions of offsets may be done above a watermark that stands still, in a row or with a gap beside each (a transaction
of one record leaves a marker behind it). As bits in chunks of 256, as Redis keeps them, ten million offsets take 5 MB
whatever their gaps, and less where there are none.
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
    """Ascending offsets, kept as ranges. Immutable.

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
    """A set of offsets, iterated in ascending order. One thread changes it; parts that it is given to only read it.

    Args:
        offsets: the first elements; another OffsetSet is copied.
    """

    __slots__ = ("_chunks", "_low")

    def __init__(self, offsets: Collection[int] = ()) -> None:
        #: Number of a chunk -> its bits, never 0.
        self._chunks: dict[int, int] = {}
        #: No chunk has a lower number.
        self._low = 0
        if isinstance(offsets, OffsetSet):
            self._chunks, self._low = offsets._chunks.copy(), offsets._low  # noqa: SLF001 - a set's own kind
        elif offsets:
            self.add_all(runs(offsets))

    @classmethod
    def of_chunks(cls, chunks: Iterable[tuple[int, int]]) -> OffsetSet:
        """Make a set from chunks. Args: chunks: number and bits of each."""
        made = cls()
        # All full chunks share one object: most are full, and there may be a million.
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
        """Number of a chunk -> its bits, never 0; in no order."""
        return MappingProxyType(self._chunks)

    @property
    def end(self) -> int:
        """The highest offset + 1; 0 = the set is empty."""
        if not self._chunks:
            return 0
        highest = max(self._chunks)
        return highest * WIDTH + self._chunks[highest].bit_length()

    def runs(self, within: range | None = None) -> Iterator[range]:
        """The offsets as ranges without gaps, ascending; only the parts inside `within`."""
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
        """The offsets of `within` that are not in the set, as ascending ranges."""
        found, at = [], within.start
        for run in self.runs(within):
            if at < run.start:
                found.append(range(at, run.start))
            at = run.stop
        return [*found, range(at, within.stop)] if at < within.stop else found

    def has_any(self, offsets: range) -> bool:
        """Whether one of these is in the set."""
        return any(self._chunks[number] & _bits(offsets, number * WIDTH) for number in self._touched(offsets))

    def first_missing(self, at: int) -> int:
        """The lowest offset from `at` on that is not in the set."""
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
        """Add ranges of offsets, none of them empty. Offsets below `at_least` are left out."""
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
        """Add all offsets of another set."""
        chunks = self._chunks
        for number, bits in other.chunks.items():
            chunks[number] = chunks.get(number, 0) | bits
        self._low = min(chunks, default=0)

    def remove(self, offsets: range) -> None:
        """Remove those of these offsets that are in the set."""
        for number in self._touched(offsets):
            left = self._chunks[number] & ~_bits(offsets, number * WIDTH)
            if left:
                self._chunks[number] = left
            else:
                del self._chunks[number]

    def remove_below(self, offset: int) -> int:
        """Remove all lower offsets. Returns how many chunks were removed with them.

        The work is bounded by the number of chunks, and by the distance to the offset of the last call.
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
        """The numbers of existing chunks that overlap with these offsets."""
        numbers, chunks = range(offsets.start // WIDTH, -(-offsets.stop // WIDTH)), self._chunks
        few, many = (numbers, chunks) if len(numbers) <= len(chunks) else (chunks, numbers)
        return [number for number in few if number in many]


def runs(offsets: Collection[int]) -> Sequence[range]:
    """Offsets as ranges, one for each unbroken run.

    The ranges hold exactly these offsets, even if they are not ascending: a record that is marked though it was not
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
    """The bits of these offsets in the chunk that begins at `base`."""
    first, after = max(offsets.start - base, 0), min(offsets.stop - base, WIDTH)
    return (1 << after) - 1 >> first << first if after > first else 0


def _runs_of(bits: int) -> Iterator[tuple[int, int]]:
    """Unbroken runs of set bits: the first bit of each, and the one after its last."""
    at = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        ones = (~bits & bits + 1).bit_length() - 1
        yield at + skip, at + skip + ones
        bits, at = bits >> ones, at + skip + ones
