"""Business keys on their way to the scripts: what scripts/keys.lua is given.

With `hash_keys` a key that is done is a field of a bucket, a hash small enough to be one block of memory. Redis expires
whole hashes only: each field says until when it is done, and a write that finds the bucket's expiry too near for its
own key moves that to 1.25 windows and sweeps; so a sweep is paid for once in a quarter of a window and bucket. Claims
are in one hash, so that a batch reads and writes them by one command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.dedup.redis_layout import encode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.dedup.claims import ClaimKey, Token
    from holdfast.dedup.redis_layout import Layout

_T = TypeVar("_T")
Args = list[bytes | str | int]
Place = tuple[int, bytes]  # shard, and a name in it
Group = tuple[list[bytes], Args]  # of one shard: keys, arguments


class Times(NamedTuple):
    """How long Redis keeps things, in ms."""

    window: int  #: a key that is done
    garbage: int  #: a claim that nobody finished; longer than any handler runs
    position: int  #: a position that nobody uses

    @property
    def claimed(self) -> int:
        """How long a batch attempt's claim lives. A claim whose attempt has finished is done without a further word,
        so: the window, and more than a write takes."""
        return self.window + self.window // 4 + 3_600_000


class Batch(NamedTuple):
    """Keys that are asked for in one round trip."""

    places: list[Place]  #: in the order of the keys
    groups: dict[int, Group]  #: for each shard; its keys in the order of all


def batch(
    layout: Layout,
    times: Times,
    keys: Collection[ClaimKey],
    *,
    held: Sequence[str] = (),
    results: bool = False,
    each: Sequence[bytes] = (),
) -> Batch:
    """The arguments of a script about keys.

    Args:
        layout: of the namespace.
        times: how long claims and finished keys are kept.
        keys: the business keys.
        held: what each key holds where the record that asks has claimed it; empty = no record asks.
        results: whether the script is given the keys of their results too.
        each: an argument for each key, or none.

    Raises:
        ValueError: a partition's name has a line break.
    """
    places = layout.places(keys)
    of_shard: dict[int, list[int]] = {}
    for i, (shard, _) in enumerate(places):
        of_shard.setdefault(shard, []).append(i)
    groups: dict[int, Group] = {}
    for shard, items in of_shard.items():
        ids = [name for _, name in _pick(places, items)]
        names = layout.names(shard, ids)
        if results:
            names += layout.result_names(shard, ids)
        lines = _lines(_pick(held, items)) if held else b""
        args: Args = [len(ids), lines, layout.digests(ids), times.garbage, times.window]
        if each:
            args += _pick(each, items)
        groups[shard] = (names, args)
    return Batch(places, groups)


def claimed_by(session: str, tokens: Iterable[Token]) -> list[str]:
    """The value of a key that these records have claimed. The partition comes last: it alone may hold a "|"."""
    return [f"C{session}|{epoch}|{offset}|{partition}" for partition, offset, epoch in tokens]


def _pick(values: Sequence[_T], items: Sequence[int]) -> Sequence[_T]:
    """The values of these items; of all of them, where there is one shard."""
    return values if len(items) == len(values) else [values[i] for i in items]


def _lines(texts: Sequence[str]) -> bytes:
    text = "\n".join(texts)
    if text.count("\n") >= len(texts):
        raise ValueError("a partition's name has a line break")
    return encode(text)
