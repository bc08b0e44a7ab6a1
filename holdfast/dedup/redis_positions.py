"""Positions on their way to and from Redis: the hash that scripts/positions.lua describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Acquired, InHand, Since, Verdict
from holdfast.dedup.offset_set import OffsetSet, Runs, runs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.dedup.claims import AskInHand, Mark
    from holdfast.dedup.redis_keys import Args

_EXACT = 2**53  # numbers in Lua are doubles


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
