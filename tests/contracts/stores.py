"""The stores under one contract: how a test makes one, kills a session in it, and sees all that it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import redis

from holdfast.dedup.claims import ClaimKey, Token
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.memory_state import Claimed
from holdfast.dedup.redis_positions import acquired
from holdfast.dedup.redis_store import RedisClaims

if TYPE_CHECKING:
    from holdfast.dedup.memory_session import MemorySession
    from holdfast.dedup.redis_session import RedisSession

#: Long enough for no renewal to happen during a test.
LEASE_S = 3600.0


class SeenPosition(NamedTuple):
    epoch: int
    owner: str | None
    watermark: int
    above: frozenset[int]
    running: dict[int, tuple[str, int]]


class View(NamedTuple):
    """All that is visible in a store."""

    #: id -> (lives, call generation)
    sessions: dict[str, tuple[bool, int]]
    positions: dict[str, SeenPosition]
    #: done = None, else session and token
    keys: dict[ClaimKey, tuple[str, Token] | None]


class Bench(Protocol):
    """A store in the hands of a test."""

    def begin(self) -> MemorySession | RedisSession: ...

    def kill(self, session_id: str) -> None:
        """As if the lease had passed at the store; its process does not know."""
        ...

    def view(self) -> View: ...

    def close(self) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self.claims = MemoryClaims(lease_s=LEASE_S, renewals=False)

    def begin(self) -> MemorySession:
        return self.claims.begin(LEASE_S)

    def kill(self, session_id: str) -> None:
        self.claims.expire(session_id)

    def view(self) -> View:
        state = self.claims.state
        return View(
            sessions={each: (state.alive(each), state.sessions[each].generation) for each in state.sessions},
            positions={
                name: SeenPosition(p.epoch, p.owner, p.watermark, frozenset(p.above), dict(p.running))
                for name, p in state.positions.items()
            },
            keys={
                key: (held.session, held.token) if isinstance(held, Claimed) else None
                for key, held in state.keys.items()
            },
        )

    def close(self) -> None:
        self.claims.close()


class RedisBench:
    """Reads Redis from the side: what the layout's docstring says is there, and nothing else."""

    def __init__(self, url: str, *, shards: int = 1, hash_keys: bool = False) -> None:
        self.raw = redis.Redis.from_url(url, socket_timeout=5.0)
        self.raw.flushdb()
        self.claims = RedisClaims.from_url(url, namespace="t", lease_s=LEASE_S, shards=shards, hash_keys=hash_keys)

    def begin(self) -> RedisSession:
        return self.claims.begin(LEASE_S)

    def kill(self, session_id: str) -> None:
        for name in self.raw.scan_iter(b"*:sessions"):
            field = self.raw.hget(name, session_id)
            if isinstance(field, bytes):
                # Just now: fields that have been dead for an hour are removed by the next `begin`.
                self.raw.hset(name, session_id, b"%d:%s" % (self._now_ms(), field.partition(b":")[2]))

    def _now_ms(self) -> int:
        seconds, micros = self.raw.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def view(self) -> View:
        """Of a store with one shard and plain keys."""
        view = View({}, {}, {})
        now_ms = self._now_ms()
        for name in self.raw.scan_iter(b"{hf:t:0}:*"):
            kind, _, rest = name.removeprefix(b"{hf:t:0}:").partition(b":")
            if kind == b"sessions":
                for session, field in _fields(self.raw.hgetall(name)).items():
                    deadline, _, generation = field.partition(b":")
                    lives = int(deadline) > now_ms
                    view.sessions[session.decode()] = (lives, int(generation))
            elif kind == b"p":
                view.positions[rest.decode()] = _position(_fields(self.raw.hgetall(name)))
            elif kind == b"k":
                view.keys[_key(rest.decode())] = _held(self.raw.get(name))
        return view

    def close(self) -> None:
        self.claims.close()
        self.raw.close()


def _fields(reply: object) -> dict[bytes, bytes]:
    return cast("dict[bytes, bytes]", reply)  # redis-py types it for clients that decode, too


def _position(fields: dict[bytes, bytes]) -> SeenPosition:
    flat = [part for pair in fields.items() for part in pair]
    seen = acquired(flat)
    owner = fields.get(b"owner")
    running: dict[int, tuple[str, int]] = {}
    for entry in fields.get(b"running", b"").decode().split():
        offset, _, holder = entry.partition("=")
        session, _, epoch = holder.partition(":")
        running[int(offset)] = (session, int(epoch))
    return SeenPosition(seen.epoch, owner.decode() if owner else None, seen.watermark, seen.done, running)


def _key(scope: str) -> ClaimKey:
    length, _, rest = scope.partition(":")
    return ClaimKey(rest[: int(length)], rest[int(length) + 1 :])


def _held(value: object) -> tuple[str, Token] | None:
    assert isinstance(value, bytes)
    if value == b"1":
        return None
    session, epoch, offset, partition = value.decode().removeprefix("C").split("|", 3)
    return session, Token(partition, int(offset), int(epoch))
