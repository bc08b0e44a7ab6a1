"""Names in Redis: which key holds what, and in which shard.

    {hf:<namespace>:<shard>}:sessions        hash: session id -> "deadline_ms:generation"
    {hf:<namespace>:<shard>}:p:<partition>   hash: a position, see scripts/positions.lua
    {hf:<namespace>:<shard>}:k:<scope>       string: "1" = done, or "C<session>|<epoch>|<offset>|<partition>" = claimed,
                                             or a number from 2 on = claimed by that batch attempt; of a key above 512
                                             bytes <scope> is "h", the scope and the key's SHA-256, as 64 digits
    {hf:<namespace>:<shard>}:r:<scope>       string: the result of a key that is done, for as long
    {hf:<namespace>:<shard>}:fence           string: the last fence given, see scripts/claim.lua
  with hash_keys, where <scope> is a digest of 16 bytes, instead of k:<scope>, see scripts/keys_hashed.lua:
    {hf:<namespace>:<shard>}:claims          hash: digest -> since when, and "C<session>|<epoch>|<offset>|<partition>"
    {hf:<namespace>:<shard>}:d:<bits>        hash: digest -> until when it is done, or which batch attempt has claimed
                                             it; of the digests that begin so
  of groups, see scripts/group.lua:
    {hf:<namespace>:<shard>}:gl:<group>      hash: leases
    {hf:<namespace>:<shard>}:g:<group>       hash: head
    {hf:<namespace>:<shard>}:gm:<group>      hash: members
    {hf:<namespace>:<shard>}:go:<group>      hash: offers
    {hf:<namespace>:<shard>}:gn:<group>      hash: notes, see coordinator.py; no script touches them
    {hf:<namespace>:<shard>}:gp:<group>      hash: posts, see coordinator.py; the same
  of sinks that are written in batches, see scripts/batch.lua:
    {hf:<namespace>:0}:b:<sink>              hash: its last attempts
    {hf:<namespace>:<shard>}:attempts        hash: what became of attempts, see scripts/keys.lua; in use in shard 0 only
  and once, or in a Redis Cluster, whose shards fail apart, `id` and `wait` in each shard:
    {hf:<namespace>:0}:layout                string: version of this layout and what all members have to agree on
    {hf:<namespace>:0}:id                    string: the store's id, made where there is none; lost with all other data
    {hf:<namespace>:0}:wait                  string: see scripts/replicate.lua

All keys of a shard share a hash tag, so that one script may touch them together. Sessions are in every shard, because a
script may only look at keys that it declares.

One server is as fast with one shard as with several (docs/measured/bench.md). Several are for a Redis Cluster: all keys
of a hash tag are on one node, so with one shard a whole namespace would be.
"""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.dedup.claims import ClaimKey

#: The most bytes of a key's name that Redis stores as text; of a longer one it stores a digest. Otherwise Redis and its
#: replicas would keep the long text for the whole window.
_LONGEST = 512
#: Digests in the cache: those of keys in flight, some megabytes at most.
_REMEMBERED = 8192
#: Keys in a bucket on average. Few, since a bucket is searched from its beginning.
_FILL = 24


def encode(text: str) -> bytes:
    """UTF-8; lone surrogates, which JSON may bring, keep a form of their own instead of failing."""
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """Read the text that `encode` was given."""
    return data.decode("utf-8", "surrogatepass")


def scoped(scope: str) -> str:
    """The part of a key's name before the key. The length makes it unambiguous: ("a:b", "c") and ("a", "b:c") get
    different names."""
    return f"{len(scope)}:{scope}:"


class Agreed(NamedTuple):
    """The values on which all members of a namespace have to agree."""

    shards: int
    hash_keys: bool
    keys_expected: int  #: or another number that leads to as many buckets


def agreed(description: str) -> Agreed | None:
    """Read `Layout.description`; None = a version that this holdfast does not know."""
    if found := re.fullmatch(r"version=4 shards=(\d+) keys=plain", description):
        return Agreed(int(found[1]), hash_keys=False, keys_expected=1)
    if found := re.fullmatch(r"version=3 shards=(\d+) keys=hashed buckets=2\^(\d+)", description):
        # The smallest number for which `Layout` makes so many buckets.
        keys_expected = 2 ** int(found[2]) * int(found[1]) * _FILL // 2 + 1
        return Agreed(int(found[1]), hash_keys=True, keys_expected=keys_expected)
    return None


class Layout:
    """The keys of one namespace. Immutable; any thread.

    Args:
        namespace: what separates groups and applications in one Redis; no braces.
        shards: over how many hash tags keys and positions are spread.
        hash_keys: store a 16-byte digest instead of the key's text. Among a billion keys two share one with odds of
            1 in 10^21; they would count as one key.
        keys_expected: how many keys are done at a time; with `hash_keys` it decides how many buckets there are.
    """

    def __init__(self, namespace: str, shards: int, *, hash_keys: bool, keys_expected: int = 1_000_000) -> None:
        self.shards = shards
        self.hash_keys = hash_keys
        self._tag_begin = encode(f"{{hf:{namespace}:")
        self._tags = [self._tag_begin + b"%d}:" % shard for shard in range(shards)]
        self._shard_of = {tag: shard for shard, tag in enumerate(self._tags)}
        self._sessions = [tag + b"sessions" for tag in self._tags]
        self._claims = [tag + b"claims" for tag in self._tags]
        self._attempts = [tag + b"attempts" for tag in self._tags]
        self.layout_key = self._tags[0] + b"layout"
        self.id_key = self._tags[0] + b"id"
        self.wait_key = self._tags[0] + b"wait"
        bits = max(0, math.ceil(math.log2(keys_expected / shards / _FILL)))
        # A bucket's name ends with the first `bits` bits of its keys' digests: whole bytes, and the upper bits of one
        # more.
        self._whole, more = divmod(bits, 8)
        self._more = bool(more)
        self._masked = bytes(byte & (0xFF00 >> more) & 0xFF for byte in range(256))
        self._last = [self._masked[byte : byte + 1] if more else b"" for byte in range(256)]
        # Up to version 2, long keys were stored as text: old and new members would not find each other's keys.
        self.description = f"version=4 shards={shards} keys=plain"
        #: A key's digest is asked for twice, when it is claimed and when it is finished.
        self._digest = lru_cache(_REMEMBERED)(_digest)
        if hash_keys:
            self.description = f"version=3 shards={shards} keys=hashed buckets=2^{bits}"

    @property
    def attempts(self) -> bytes:
        """The hash of batch attempts, which are in the first shard."""
        return self._attempts[0]

    @property
    def id_keys(self) -> list[bytes]:
        """The id of each shard."""
        return [tag + b"id" for tag in self._tags]

    @staticmethod
    def wait_key_beside(key: bytes) -> bytes:
        """The key for waiting, in the shard of that key."""
        return key[: key.index(b"}:") + 2] + b"wait"

    def sessions(self, shard: int) -> bytes:
        """The hash of sessions."""
        return self._sessions[shard]

    def fence(self, shard: int) -> bytes:
        """The key of the last fence."""
        return self._tags[shard] + b"fence"

    def position(self, partition: str) -> tuple[int, bytes]:
        """Shard and key of a position."""
        name = encode(partition)
        shard = zlib.crc32(name) % self.shards
        return shard, self._tags[shard] + b"p:" + name

    def group(self, group: str) -> list[bytes]:
        """The keys of a group, leases first."""
        name = encode(group)
        tag = self._tags[zlib.crc32(name) % self.shards]
        return [tag + kind + name for kind in (b"gl:", b"g:", b"gm:", b"go:")]

    def notes(self, group: str) -> bytes:
        """The key of what is noted beside a group."""
        name = encode(group)
        return self._tags[zlib.crc32(name) % self.shards] + b"gn:" + name

    def posts(self, group: str) -> bytes:
        """The key of what members of a group have put up."""
        name = encode(group)
        return self._tags[zlib.crc32(name) % self.shards] + b"gp:" + name

    def sink(self, sink: str) -> bytes:
        """The key of a sink's attempts."""
        return self._tags[0] + b"b:" + encode(sink)

    def names_of(self, keys: Sequence[ClaimKey]) -> list[bytes]:
        """Names of business keys in their shards: scope and text, or their digest; a key above 512 bytes by its
        scope and its digest."""
        if not keys:
            return []
        scopes, texts = zip(*keys, strict=True)
        begins = {scope: scoped(scope) for scope in set(scopes)}
        names: list[bytes] = []
        if len(begins) == 1:  # made at once: three times as fast as one by one
            [begin] = begins.values()
            names = encode(begin + f"\n{begin}".join(texts)).split(b"\n")
        if len(names) != len(texts):  # several scopes, or a text with a line break
            names = [encode(begins[scope] + text) for scope, text in zip(scopes, texts, strict=True)]
        long = max(map(len, names)) > _LONGEST
        if self.hash_keys and long:  # the cache would keep a key of a megabyte for its digest
            return [_digest(name) if len(name) > _LONGEST else self._digest(name) for name in names]
        if self.hash_keys:
            return list(map(self._digest, names))
        if long:
            return [_shortened(name, encode(begins[key.scope])) for name, key in zip(names, keys, strict=True)]
        return names

    def shards_of(self, names: Sequence[bytes]) -> Sequence[int]:
        """The shards of business keys, by their names (`names_of`)."""
        return [0] * len(names) if self.shards == 1 else [zlib.crc32(name) % self.shards for name in names]

    def places(self, keys: Sequence[ClaimKey]) -> list[tuple[int, bytes]]:
        """Return shard and name of each business key."""
        names = self.names_of(keys)
        return list(zip(self.shards_of(names), names, strict=True))

    def declared(self, shard: int, names: Iterable[bytes]) -> list[bytes]:
        """The Redis keys that a script about these business keys has to declare. Args: names: see `names_of`."""
        if not self.hash_keys:
            begin = self._tags[shard] + b"k:"
            return [self._attempts[shard], *[begin + name for name in names]]
        begin, whole, last = self._tags[shard] + b"d:", self._whole, self._last
        if self._more:
            buckets = [begin + digest[:whole] + last[digest[whole]] for digest in names]
        else:
            buckets = [begin + digest[:whole] for digest in names]
        return [self._attempts[shard], self._claims[shard], *buckets]

    def buckets(self, digests: bytes) -> tuple[list[bytes], list[int]]:
        """Return the names that a script declares which takes digests bucket by bucket, and how many are in each.

        Args:
            digests: in order, one after the other; the namespace has one shard.
        """
        upper = [digests[i::16] for i in range(self._whole)]
        if self._more:
            upper.append(digests[self._whole :: 16].translate(self._masked))
        sizes = Counter(zip(*upper, strict=True)) if upper else {(): len(digests) // 16}
        begin = self._tags[0] + b"d:"
        return [self._attempts[0], self._claims[0], *[begin + bytes(each) for each in sizes]], list(sizes.values())

    def results(self, shard: int, names: Iterable[bytes]) -> list[bytes]:
        """The Redis keys of these business keys' results."""
        begin = self._tags[shard] + b"r:"
        return [begin + name for name in names]

    def digests(self, names: Iterable[bytes]) -> bytes:
        """The digests one after the other; empty where keys are plain."""
        return b"".join(names) if self.hash_keys else b""

    def pattern(self, begin: str = "") -> bytes:
        """The pattern for SCAN: names in any shard whose part after the hash tag begins with `begin`. It also matches a
        namespace whose name begins with this one's and a colon; `split` tells them apart."""
        return _literal(self._tag_begin) + b"*}:" + _literal(encode(begin)) + b"*"

    def split(self, name: bytes) -> tuple[int, bytes] | None:
        """Return a name's shard, and its part after the hash tag; None = not of this namespace."""
        tag, end, rest = name.partition(b"}:")
        shard = self._shard_of.get(tag + end)
        return None if shard is None else (shard, rest)

    @staticmethod
    def scope_of(rest: bytes) -> str:
        """The scope of a plain business key, from what follows the hash tag."""
        length, _, scope = decode(rest.removeprefix(b"k:")).partition(":")
        return scope[: int(length.removeprefix("h"))]


def _digest(name: bytes) -> bytes:
    # SHA-256: Spark's executors compute it too.
    return hashlib.sha256(name, usedforsecurity=False).digest()[:16]


def _shortened(name: bytes, begin: bytes) -> bytes:
    """The name of a plain key, with a digest in place of a long one. No other name begins with "h", so a digest is
    never taken for a key's text."""
    key = name[len(begin) :]
    return name if len(key) <= _LONGEST else b"h" + begin + hashlib.sha256(key).hexdigest().encode()


def _literal(text: bytes) -> bytes:
    """A pattern that matches this text only."""
    return re.sub(rb"([*?^\\\[\]-])", rb"\\\1", text)
