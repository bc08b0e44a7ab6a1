"""Batch attempts at Redis: each method is one script, one round trip. See spark_batches.py and scripts/batch.lua."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.redis_keys import batch as keys_of
from holdfast.dedup.redis_layout import decode, encode
from holdfast.dedup.redis_scripts import ScriptCall
from holdfast.dedup.spark_batches import Attempt, BatchId, BatchVerdict, Begun, Behind, Elsewhere, Fate, Finished, Lost
from holdfast.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.redis_keys import Args
    from holdfast.dedup.redis_store import Parts, RedisClaims

_VERDICTS = {ord(verdict.value): verdict for verdict in BatchVerdict}
_NO_SESSION: tuple[bytes, int] = (b"", 0)  # session and call generation of a call without a session


class RedisBatches:
    """Made by `of`. Any thread."""

    def __init__(self, parts: Parts) -> None:
        parts.scripts.follow()
        self._parts = parts
        self._sessions = parts.layout.sessions(0)

    @classmethod
    def of(cls, store: RedisClaims) -> Self:
        """Make one for the namespace of this store, at the server that its sentinels name now: claims at a replaced
        master that is cut off would never reach the new one. Asks each sentinel once, if there are any.

        Raises:
            StoreUnavailable: no answer.
            StoreRefused: credentials, another layout, or more than one shard: an attempt is finished in one step, which
                is not possible over several shards.
        """
        parts = store.parts()
        if parts.layout.shards > 1:
            raise StoreRefused(
                f"batches need a namespace of one shard, and this one has {parts.layout.shards}: give the sink a "
                "namespace of its own"
            )
        return cls(parts)

    def begin(
        self, batch: BatchId, session: ClaimSession, *, origin: str = "", beside: Attempt | None = None
    ) -> Begun | Finished | Behind | Elsewhere | Lost:
        """Ask for the next attempt."""
        but_for = encode(beside.session) if beside is not None else b""
        reply = self._ask("batch_begin", batch, session.id, self._parts.times.garbage, encode(origin), but_for)
        if isinstance(reply, bytes):
            return Lost(reply.decode())
        kind, *rest = reply
        if kind == b"BEHIND":
            return Behind(rest[0])
        if kind == b"ELSEWHERE":
            return Elsewhere(decode(rest[0]), rest[1], rest[2] / 1000)
        if kind == b"FINISHED":
            return Finished(
                Attempt(batch, rest[0], decode(rest[1]), rest[2]), decode(rest[3]), bool(rest[4]), decode(rest[5])
            )
        number, last, born, life = rest
        return Begun(Attempt(batch, number, session.id, born, decode(life)), _last(batch.sink, last, born))

    def claim(self, attempt: Attempt, keys: Sequence[str]) -> list[BatchVerdict]:
        """Ask for keys."""
        if not self.takes_digests:
            return [_VERDICTS[each] for each in self.claim_texts(attempt, keys)]
        digests = self._parts.layout.names_of([ClaimKey(attempt.of.sink, key) for key in keys])
        ordered = sorted(digests)
        replies = dict(zip(ordered, self.claim_digests(attempt, b"".join(ordered)), strict=True))
        return [_VERDICTS[replies[digest]] for digest in digests]

    @property
    def takes_digests(self) -> bool:
        """Whether the namespace's keys are digests: then use `claim_digests` for many keys."""
        return self._parts.layout.hash_keys

    def claim_texts(self, attempt: Attempt, keys: Sequence[str]) -> bytes:
        """Claim plain keys as `claim` does. Returns one character a key: the value of its `BatchVerdict`."""
        layout = self._parts.layout
        names = layout.declared(0, layout.names_of([ClaimKey(attempt.of.sink, key) for key in keys]))
        return self._claim("batch_claim_plain", attempt, names, [len(keys), b"", b""])

    def claim_digests(self, attempt: Attempt, digests: bytes) -> bytes:
        """Claim digests as `claim` does.

        Args:
            attempt: the one that asks.
            digests: 16 bytes each, in ascending order, one after the other.

        Returns: one character a key, in their order: the value of its `BatchVerdict`.
        """
        names, sizes = self._parts.layout.buckets(digests)
        return self._claim("batch_claim_hashed", attempt, names, [len(digests) // 16, b"", digests], sizes)

    def _claim(
        self, script: str, attempt: Attempt, names: list[bytes], items: Args, sizes: Sequence[int] = ()
    ) -> bytes:
        times = self._parts.times
        args: Args = [*_NO_SESSION, *items, times.garbage, times.window]
        args += [encode(attempt.session), attempt.number + 1, times.claimed, encode(attempt.life), *sizes]
        [reply] = self._parts.scripts.run(script, [ScriptCall([self._sessions, *names], args)], durable=True)
        return bytes(reply)

    def finish(self, attempt: Attempt, *, keys: str = "") -> bool:
        """End the attempt after its write."""
        times = self._parts.times
        given = (attempt.number, times.window, self._kept_ms, encode(keys), encode(attempt.life))
        return bool(self._ask("batch_finish", attempt.of, attempt.session, *given) == b"OK")

    @property
    def _kept_ms(self) -> int:
        """How long a claim is kept at least. A bucket's expiry is moved only after a quarter of the window: see
        batch_claim_hashed.lua."""
        times = self._parts.times
        return times.claimed - (times.window // 4 if self._parts.layout.hash_keys else 0)

    def fate(self, attempt: Attempt) -> Fate:
        """Whether it lives; else, why not."""
        given = (attempt.number, attempt.born, encode(attempt.life))
        return Fate(self._ask("batch_fate", attempt.of, attempt.session, *given).decode())

    def give_up(self, session: str) -> None:
        """End the attempt of this session, unless it is finished."""
        self._parts.scripts.run(
            "batch_give_up", [ScriptCall([self._sessions], [*_NO_SESSION, encode(session)])], durable=True
        )

    def done(self, scope: str, keys: Sequence[str]) -> list[bool]:
        """Which keys are done."""
        if not keys:
            return []
        asked = keys_of(self._parts.layout, self._parts.times, [ClaimKey(scope, key) for key in keys])
        [(names, given)] = asked.groups.values()
        [reply] = self._parts.scripts.run("batch_done", [ScriptCall([self._sessions, *names], [*_NO_SESSION, *given])])
        return [each == ord("D") for each in reply]

    def _ask(self, name: str, batch: BatchId, session: str, *args: int | bytes) -> Any:  # noqa: ANN401 - a script's reply
        self._parts.scripts.follow()  # a replaced master that is cut off would still answer
        keys = [self._sessions, self._parts.layout.sink(batch.sink), self._parts.layout.attempts]
        given: Args = [*_NO_SESSION, self._parts.times.sink, encode(session), encode(batch.query), batch.batch, *args]
        [reply] = self._parts.scripts.run(name, [ScriptCall(keys, given)], durable=True)
        return reply


def _last(sink: str, field: bytes, born: int) -> Attempt | None:
    if not field:
        return None
    batch, number, session, query = decode(field).split(":", 3)
    return Attempt(BatchId(sink, query, int(batch)), int(number), session, born)
