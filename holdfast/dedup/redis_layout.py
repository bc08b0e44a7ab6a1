"""Names in Redis: which key holds what, and in which shard.

    {hf:<namespace>:<shard>}:sessions        hash: session id -> "deadline_ms:generation"
    {hf:<namespace>:<shard>}:p:<partition>   hash: a position, see scripts/positions.lua
    {hf:<namespace>:<shard>}:k:<scope>       string: "1" = done, or "C<session>|<epoch>|<offset>|<partition>" = claimed
    {hf:<namespace>:0}:layout                string: version of this layout and what all members have to agree on
    {hf:<namespace>:0}:wait                  string: see scripts/replicate.lua

All keys of a shard share a hash tag, so that one script may touch them together. Sessions are in every shard, because a
script may only look at keys that it declares.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.dedup.claims import ClaimKey, Token

LAYOUT_VERSION = 1


def encode(text: str) -> bytes:
    """UTF-8; lone surrogates, which JSON may bring, keep a form of their own instead of failing."""
    return text.encode("utf-8", "surrogatepass")


def token_lines(tokens: Iterable[Token]) -> bytes:
    """Records under an ownership, one a line. The partition comes last: it alone may hold a "|".

    Raises:
        ValueError: a partition's name has a line break.
    """
    lines = [f"{epoch}|{offset}|{partition}" for partition, offset, epoch in tokens]
    text = "\n".join(lines)
    if text.count("\n") >= len(lines) > 0:
        raise ValueError("a partition's name has a line break")
    return encode(text)


class Layout:
    """The keys of one namespace. Immutable; any thread.

    Args:
        namespace: what separates groups and applications in one Redis; no braces.
        shards: over how many hash tags keys and positions are spread.
        hash_keys: store a 16-byte digest instead of the key's text. Among a billion keys two share one with odds of
            1 in 10^21; they would count as one key.
    """

    def __init__(self, namespace: str, shards: int, *, hash_keys: bool) -> None:
        self.shards = shards
        self._hash_keys = hash_keys
        self._tags = [encode(f"{{hf:{namespace}:{shard}}}:") for shard in range(shards)]
        self._sessions = [tag + b"sessions" for tag in self._tags]
        self.layout_key = self._tags[0] + b"layout"
        self.wait_key = self._tags[0] + b"wait"
        self.description = f"version={LAYOUT_VERSION} shards={shards} keys={'hashed' if hash_keys else 'plain'}"

    def sessions(self, shard: int) -> bytes:
        """The hash of sessions."""
        return self._sessions[shard]

    def position(self, partition: str) -> tuple[int, bytes]:
        """Shard and key of a position."""
        name = encode(partition)
        shard = zlib.crc32(name) % self.shards
        return shard, self._tags[shard] + b"p:" + name

    def key(self, key: ClaimKey) -> tuple[int, bytes]:
        """Shard and key of a business key."""
        # The length makes the scope unambiguous: ("a:b", "c") and ("a", "b:c") are two.
        scope = encode(f"{len(key.scope)}:{key.scope}:{key.key}")
        if self._hash_keys:
            scope = hashlib.blake2b(scope, digest_size=16).digest()
        shard = zlib.crc32(scope) % self.shards
        return shard, self._tags[shard] + b"k:" + scope
