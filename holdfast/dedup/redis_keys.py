"""Business keys on their way to the scripts: the keys and arguments of scripts/keys.lua.

With `hash_keys` a key that is done is a field of a bucket, a hash small enough to be one block of memory. Redis expires
whole hashes only. Each field therefore says until when its key is done, and a write that finds the bucket's expiry too
near for its own key moves the expiry to 1.25 windows and sweeps: one sweep a bucket in each quarter of a window. Claims
are in one hash, so that a batch reads and writes them by one command.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.dedup.redis_layout import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import ClaimKey, Token
    from holdfast.dedup.redis_layout import Layout

_T = TypeVar("_T")
Args = list[bytes | str | int]
ShardKey = tuple[int, bytes]  # shard, and a name in it
Group = tuple[list[bytes], Args]  # of one shard: keys, arguments


class Times(NamedTuple):
    """How long Redis keeps things, in ms."""

    window: int  #: a key that is done
    garbage: int  #: a claim that was never finished; longer than any handler runs
    position: int  #: a position that is no longer used

    @property
    def claimed(self) -> int:
        """How long a batch attempt's claim is kept. The claims of an attempt become done when it finishes, without a
        further write: the window, and more than the attempt's write takes."""
        return self.window + self.window // 4 + 3_600_000

    @property
    def sink(self) -> int:
        """How long a sink is kept unused: no shorter than its keys. If the sink were forgotten first, a repetition of
        its last batch would begin anew, find all keys done, and replace the rows that were written by none."""
        return max(self.position, self.claimed)


class Batch(NamedTuple):
    """Keys that are asked for in one round trip."""

    shards: Sequence[int]  #: of each key
    groups: dict[int, Group]  #: of each shard; its keys are in the order of all keys


def batch(
    layout: Layout,
    times: Times,
    keys: Sequence[ClaimKey],
    *,
    held: Sequence[Token] = (),
    results: bool = False,
    each: Sequence[bytes] = (),
) -> Batch:
    """The arguments of a script about keys.

    Args:
        layout: of the namespace.
        times: how long claims and finished keys are kept.
        keys: the business keys.
        held: the record that asks for each key; empty = no record asks.
        results: whether the script is given the keys of their results too.
        each: an argument for each key, or none.

    Raises:
        ValueError: a partition's name has a line break.
    """
    names = layout.names_of(keys)
    shards = layout.shards_of(names)
    groups: dict[int, Group] = {}
    for shard, items in _by_shard(layout, shards).items():
        own = _pick(names, items)
        declared = layout.declared(shard, own)
        if results:
            declared += layout.results(shard, own)
        args: Args = [len(own), _held(_pick(held, items)), layout.digests(own), times.garbage, times.window]
        if each:
            args += _pick(each, items)
        groups[shard] = (declared, args)
    return Batch(shards, groups)


def _by_shard(layout: Layout, shards: Sequence[int]) -> dict[int, Sequence[int]]:
    """The items of each shard."""
    if layout.shards == 1:
        return {0: range(len(shards))} if shards else {}
    items: dict[int, list[int]] = {}
    for item, shard in enumerate(shards):
        items.setdefault(shard, []).append(item)
    return dict(items)


def _pick(values: Sequence[_T], items: Sequence[int]) -> Sequence[_T]:
    """The values of these items; of all of them, where there is one shard."""
    return values if len(items) >= len(values) else [values[i] for i in items]


def _held(tokens: Sequence[Token]) -> bytes:
    """The records that ask, as scripts/keys.lua reads them: ownerships, offsets, and the ownership of each record. A
    batch has few ownerships, so the text that Redis keeps with each key is not sent with each."""
    if not tokens:
        return b""
    partitions, offsets, epochs = zip(*tokens, strict=True)
    count = len(offsets)
    if partitions.count(partitions[0]) == epochs.count(epochs[0]) == count:
        owned, which = [(partitions[0], epochs[0])], bytes(2 * count)
    else:
        found: dict[tuple[str, int], int] = {}
        numbers = [found.setdefault(each, len(found)) for each in zip(partitions, epochs, strict=True)]
        owned, which = list(found), struct.pack(f">{count}H", *numbers)
    if any("\n" in partition for partition, _ in owned):
        raise ValueError("a partition's name has a line break")
    lines = [str(len(owned)), *[f"{epoch} {partition}" for partition, epoch in owned]]
    return encode("\n".join(lines)) + b"\n" + b"%d\n" * count % offsets + which
