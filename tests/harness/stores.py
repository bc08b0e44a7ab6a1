"""The stores under one contract: how a test makes one, kills a session in it, and sees all that it holds."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import redis
from redis.exceptions import NoPermissionError

from holdfast.dedup.claims import ClaimKey, Token
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.memory_state import Claimed, Finished
from holdfast.dedup.redis_positions import acquired
from holdfast.dedup.redis_session import RedisSession
from holdfast.dedup.redis_store import RedisClaims
from holdfast.runtime import MACHINE
from holdfast.testing.store_session import SimulatedSession
from tests.simulation.lua.lua_redis import LuaRedis
from tests.simulation.lua.redis_client import LuaClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from redis.exceptions import ResponseError

    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.lease import Lease
    from holdfast.dedup.memory_session import MemorySession
    from tests.simulation.lua.redis_data import Reply

#: Long enough for no renewal to happen during a test.
LEASE_S = 3600.0


class SeenPosition(NamedTuple):
    epoch: int
    owner: str | None
    watermark: int
    above: AbstractSet[int]
    running: dict[int, tuple[str, int]]


class View(NamedTuple):
    """All that is visible in a store."""

    #: id -> (lives, call generation)
    sessions: dict[str, tuple[bool, int]]
    positions: dict[str, SeenPosition]
    #: done = None, else session and token
    keys: dict[ClaimKey, tuple[str, Token] | None]
    #: of keys that are done, where there is one
    results: dict[ClaimKey, str]


_S = TypeVar("_S", bound="ClaimSession")


def on_its_way(session: _S) -> _S:
    """The session as a call that is on its way has it: it carries the call generation of now."""
    late = copy.copy(session)
    if isinstance(late, RedisSession):
        late._asker = copy.copy(late._asker)
    return late


class Bench(Protocol):
    """A store in the hands of a test."""

    def begin(self) -> MemorySession | RedisSession: ...

    def kill(self, session_id: str) -> None:
        """As if the lease had passed at the store; its process does not know."""
        ...

    def age(self, seconds: float) -> None:
        """As if so much time had passed for keys that are done."""
        ...

    def replica(self) -> Callable[[], None]:
        """What a replica has that hears nothing from now on. Call it to fail over to that."""
        ...

    def empty(self) -> None:
        """All is forgotten: FLUSHALL."""
        ...

    def view(self) -> View: ...

    @property
    def claims(self) -> MemoryClaims | RedisClaims: ...

    def close(self) -> None: ...


class _Claims(MemoryClaims):
    """Its sessions say again, as those at a Redis do, what a failover may have lost."""

    def _session(self, lease: Lease) -> MemorySession:
        return SimulatedSession(self.state, lease, self._carry, MACHINE, lambda: 0)


class MemoryBench:
    def __init__(self) -> None:
        self.claims = _Claims(lease_s=LEASE_S, renewals=False)

    def begin(self) -> MemorySession:
        return self.claims.begin(LEASE_S)

    def kill(self, session_id: str) -> None:
        self.claims.expire(session_id)

    def age(self, seconds: float) -> None:
        keys = self.claims.state.keys
        for key, held in keys.items():
            if isinstance(held, Finished):
                keys[key] = held._replace(until=held.until - seconds)

    def replica(self) -> Callable[[], None]:
        state = self.claims.state
        kept = copy.deepcopy((state.sessions, state.positions, state.keys, state.fence))

        def fail_over() -> None:
            state.sessions, state.positions, state.keys, state.fence = copy.deepcopy(kept)

        return fail_over

    def empty(self) -> None:
        state = self.claims.state
        state.sessions, state.positions, state.keys, state.fence = {}, {}, {}, 0
        state.store_id = secrets.token_hex(8)

    def view(self) -> View:
        state = self.claims.state
        for key in [key for key in state.keys if state.key(key) is None]:
            del state.keys[key]
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
            results={
                key: held.result for key, held in state.keys.items() if isinstance(held, Finished) and held.result
            },
        )

    def close(self) -> None:
        self.claims.close()


class RedisBench:
    """Reads Redis from the side: what the layout's docstring says is there, and nothing else."""

    def __init__(self, url: str, *, hash_keys: bool = False, known: Iterable[ClaimKey] = (), **settings: Any) -> None:
        """`known`: the keys that `view` can tell by their digests."""
        settings = {"namespace": "t", "lease_s": LEASE_S, "hash_keys": hash_keys, **settings}
        self.raw, self.claims = self._made(url, settings)
        self.raw.flushdb()
        self._known = {hashlib.sha256(_name(key)).digest()[:16] if hash_keys else _plain(key): key for key in known}

    def _made(self, url: str, settings: dict[str, Any]) -> tuple[redis.Redis, RedisClaims]:
        raw = redis.Redis.from_url(url, socket_timeout=30.0)
        return raw, RedisClaims.from_url(url, **{"timeout_s": 30.0, **settings})

    def begin(self) -> RedisSession:
        return self.claims.begin(LEASE_S)

    def kill(self, session_id: str) -> None:
        for name in self.raw.scan_iter(b"*:sessions"):
            field = self.raw.hget(name, session_id)
            if isinstance(field, bytes):
                # Just now: fields that have been dead for an hour are removed by the next `begin`.
                self.raw.hset(name, session_id, b"%d:%s" % (self._now_ms(), field.partition(b":")[2]))

    def age(self, seconds: float) -> None:
        ms = int(seconds * 1000)
        for name in self.raw.scan_iter(b"{hf:t:*}:[krd]:*"):
            kind = name.partition(b"}:")[2][:1]
            if kind == b"d":
                for digest, until in _fields(self.raw.hgetall(name)).items():
                    self.raw.hset(name, digest, int(until) - ms)
            if kind != b"k" or self.raw.get(name) == b"1":
                self.raw.pexpire(name, int(self.raw.pttl(name)) - ms)

    def replica(self) -> Callable[[], None]:
        names = list(self.raw.scan_iter(b"*"))
        kept = [(name, max(0, int(self.raw.pttl(name))), self.raw.dump(name) or b"") for name in names]

        def fail_over() -> None:
            self.raw.flushdb()
            for name, left_ms, dump in kept:
                self.raw.restore(name, left_ms, dump)

        return fail_over

    def empty(self) -> None:
        self.raw.flushdb()

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Meanwhile the user may run no scripts."""
        self.raw.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self.raw.execute_command("ACL", "SETUSER", "default", "+eval", "+evalsha")  # type: ignore[no-untyped-call]

    def _now_ms(self) -> int:
        seconds, micros = self.raw.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def view(self) -> View:
        """Of a store with one shard, and keys that are known."""
        view = View({}, {}, {}, {})
        now_ms = self._now_ms()
        attempts = _fields(self.raw.hgetall(b"{hf:t:0}:attempts"))
        for name in self.raw.scan_iter(b"{hf:t:0}:*"):
            kind, _, rest = name.removeprefix(b"{hf:t:0}:").partition(b":")
            if kind == b"sessions":
                for session, field in _fields(self.raw.hgetall(name)).items():
                    deadline, _, generation = field.partition(b":")
                    lives = int(deadline) > now_ms
                    view.sessions[session.decode()] = (lives, int(generation))
            elif kind == b"p":
                view.positions[rest.decode()] = _position(_fields(self.raw.hgetall(name)))
            elif kind == b"r":
                result = self.raw.get(name)
                assert isinstance(result, bytes)
                view.results[self._known[rest]] = result.decode()
            else:
                self._see_keys(view, name, kind, rest, now_ms, attempts)
        return view

    def _see_keys(
        self, view: View, name: bytes, kind: bytes, rest: bytes, now_ms: int, attempts: dict[bytes, bytes]
    ) -> None:
        if kind == b"k":
            view.keys[self._known[rest]] = _held(self.raw.get(name), attempts)
        elif kind == b"claims":
            for digest, held in _fields(self.raw.hgetall(name)).items():
                assert now_ms - 3_600_000 < int(held[:13]) <= now_ms + 1
                view.keys[self._known[digest]] = _held(held[13:], attempts)
        elif kind == b"d":
            for digest, until in _fields(self.raw.hgetall(name)).items():
                if len(until) < 13:  # a batch attempt's, unless another has claimed it since
                    view.keys.setdefault(self._known[digest], _held(until, attempts))
                elif int(until) >= now_ms:
                    assert view.keys.get(self._known[digest]) is None, "both claimed and done"
                    view.keys[self._known[digest]] = None

    def close(self) -> None:
        self.claims.close()
        self.raw.close()


class ClusterBench(RedisBench):
    """In a Redis Cluster, read by redis-py's own client."""

    def _made(self, url: str, settings: dict[str, Any]) -> tuple[redis.Redis, RedisClaims]:
        first = url.replace("+cluster", "").partition(",")[0]
        self._cluster = redis.RedisCluster.from_url(first, socket_timeout=30.0)
        # The commands that are used here are the same; types of the two have no common one.
        return cast("redis.Redis", self._cluster), RedisClaims.from_url(url, **{"timeout_s": 30.0, **settings})

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Meanwhile the user may run no scripts."""
        for node in self._nodes():
            node.acl_setuser("default", commands=["-eval", "-evalsha"])
        try:
            yield
        finally:
            for node in self._nodes():
                node.acl_setuser("default", commands=["+eval", "+evalsha"])

    def _now_ms(self) -> int:
        seconds, micros = self._nodes()[0].time()
        return int(seconds) * 1000 + int(micros) // 1000

    def _nodes(self) -> list[redis.Redis]:
        known = self._cluster.nodes_manager.nodes_cache.values()
        return [self._cluster.get_redis_connection(node) for node in known]


class LuaBench(RedisBench):
    """The same scripts in this process, at `LuaRedis`."""

    def _made(self, url: str, settings: dict[str, Any]) -> tuple[redis.Redis, RedisClaims]:
        server, self._shut = LuaRedis(MACHINE), False
        self.server = server

        def ask(commands: Sequence[Sequence[bytes]]) -> list[Reply | ResponseError]:
            if self._shut and any(command[0].startswith(b"EVAL") for command in commands):
                return [NoPermissionError("User default has no permissions to run the 'evalsha' command")]
            return server.call(commands)

        return LuaClient(ask, 30.0), RedisClaims(LuaClient(ask, 30.0), **settings)

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Meanwhile the user may run no scripts."""
        self._shut = True
        try:
            yield
        finally:
            self._shut = False


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


def _name(key: ClaimKey) -> bytes:
    return f"{len(key.scope)}:{key.scope}:{key.key}".encode()


def _plain(key: ClaimKey) -> bytes:
    """As the layout says of plain keys."""
    if len(key.key.encode()) <= 512:
        return _name(key)
    return f"h{len(key.scope)}:{key.scope}:{hashlib.sha256(key.key.encode()).hexdigest()}".encode()


def _held(value: object, attempts: dict[bytes, bytes]) -> tuple[str, Token] | None:
    assert isinstance(value, bytes)
    if value == b"1":
        return None
    if value.isdigit():
        session = attempts[value].partition(b":")[2].decode()
        return None if attempts[value].startswith(b"F") else (session, Token("batch", 0, int(value) - 1))
    session, epoch, offset, partition = value.decode().removeprefix("C").split("|", 3)
    return session, Token(partition, int(offset), int(epoch))
