"""Positions on their way to and from Redis: runs of offsets, and the hash that scripts/positions.lua describes."""

from __future__ import annotations

import operator
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Acquired

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 256  # offsets in a chunk: positions.lua
_EXACT = 2**53  # numbers in Lua are doubles


def check_offsets(offsets: Sequence[int]) -> None:
    """Refuse offsets that Lua cannot count with: negative ones, and those from 2^53 on.

    Raises:
        ValueError: naming the offset.
    """
    if not offsets:
        return
    # Nearly always it is a range: of that, the ends say all.
    ends = (offsets[0], offsets[-1]) if isinstance(offsets, range) else offsets
    if not (min(ends) >= 0 and max(ends) < _EXACT):
        raise ValueError(f"offsets between {min(ends)} and {max(ends)}: a position holds those from 0 to 2^53 - 1")


def runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Offsets as (first, length) of each unbroken run.

    Never anything that is not in `offsets`, even if these are not ascending: a record that is marked and was not
    handled would be lost.
    """
    if not offsets:
        return []
    if isinstance(offsets, range) and offsets.step == 1:
        return [(offsets.start, len(offsets))]
    if not all(map(operator.lt, offsets, islice(offsets, 1, None))):
        offsets = sorted(set(offsets))
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        return [(offsets[0], len(offsets))]
    found: list[tuple[int, int]] = []
    first = after = offsets[0]
    for offset in offsets:
        if offset != after:
            found.append((first, after - first))
            first = offset
        after = offset + 1
    found.append((first, after - first))
    return found


def acquired(reply: Sequence[bytes]) -> Acquired:
    """A position from its hash, as fields and values in turn."""
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    watermark = int(fields.get(b"w", b"0"))
    done: list[int] = []
    for field, chunk in fields.items():
        if field.startswith(b"b:"):
            base, bits = int(field[2:]) * _WIDTH, int.from_bytes(chunk, "little")
            # Bits below the watermark may stay set; they say nothing.
            done.extend(base + i for i in range(bits.bit_length()) if bits >> i & 1 and base + i >= watermark)
    running = (int(entry.partition(b"=")[0]) for entry in fields.get(b"running", b"").split())
    born_ms, again = int(fields.get(b"born", b"0")), int(fields.get(b"again", b"0"))
    begun = b"w" in fields
    return Acquired(int(fields[b"epoch"]), watermark, frozenset(done), frozenset(running), born_ms, again, begun)
