"""LuaStore: the shipped store, `RedisClaims` with its scripts, as a server of a simulated world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_layout import Layout
from holdfast.dedup.redis_positions import acquired
from holdfast.dedup.redis_store import RedisClaims
from holdfast.testing.network import NoAnswer, Refused
from holdfast.testing.store import StoreServer
from tests.simulation.lua.lua_redis import LuaRedis
from tests.simulation.lua.redis_client import LuaClient

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from redis.exceptions import ResponseError

    from holdfast.dedup.claims import ClaimKey
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from tests.simulation.lua.redis_data import Reply

_WEEK_S = 7 * 86_400.0
#: Few, so that some buckets have several keys.
_KEYS_EXPECTED = 1000


class LuaStore(StoreServer):
    """A Redis in this process that runs the shipped scripts; its clock is the world's. Needs `lupa`.

    Args:
        scheduler: of the world.
        lease_s: as in `RedisClaims`.
        window_s: as in `RedisClaims`.
        timeout_s: how long a process waits for a reply.
        hash_keys: as in `RedisClaims`.
        shards: as in `RedisClaims`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        lease_s: float | None = None,
        window_s: float = _WEEK_S,
        timeout_s: float = 1.0,
        hash_keys: bool = False,
        shards: int = 1,
    ) -> None:
        super().__init__(scheduler, timeout_s=timeout_s)
        #: The server, for judges, which only read it.
        self.redis = LuaRedis(self.process.runtime)
        self._claims: dict[Process, RedisClaims] = {}
        self._lease_s, self._window_s, self._timeout_s = lease_s, window_s, timeout_s
        self._layout = Layout("holdfast", shards, hash_keys=hash_keys, keys_expected=_KEYS_EXPECTED)

    def claims(self, process: Process) -> RedisClaims:
        """The store as that process sees it."""
        if process not in self._claims:
            self._claims[process] = RedisClaims(
                self._client(process),
                lease_s=self._lease_s,
                window_s=self._window_s,
                hash_keys=self._layout.hash_keys,
                shards=self._layout.shards,
                keys_expected=_KEYS_EXPECTED,
                runtime=process.runtime,
            )
        return self._claims[process]

    def coordinator(self, process: Process) -> RedisCoordinator:
        """Groups in the same server, as that process sees them."""
        return RedisCoordinator(self.claims(process), runtime=process.runtime)

    def empty(self) -> None:
        """Start the store again with nothing."""
        self.redis.restart()

    def alive(self, session: str) -> bool:
        """Whether the session lives in all shards."""
        shards = [self._layout.sessions(shard) for shard in range(self._layout.shards)]
        found = self._look(*((b"HGET", name, session.encode()) for name in shards))
        now_ms = self.process.runtime.wall_ms()
        return all(isinstance(field, bytes) and int(field.partition(b":")[0]) > now_ms for field in found)

    def is_done(self, position: str, offset: int) -> bool:
        """Whether the offset is marked as done in that position."""
        [fields] = self._look((b"HGETALL", self._layout.position(position)[1]))
        if not fields:
            return False  # no session has acquired it, or the position has expired
        known = acquired(fields)
        return offset < known.watermark or offset in known.done

    def is_finished(self, key: ClaimKey) -> bool:
        """Whether the key is done. Keys of Spark's batches are not looked at: no world has any."""
        found = self.held(key)
        if not self._layout.hash_keys:
            return found == (b"1",)
        claim, until_ms = found
        return claim is None and isinstance(until_ms, bytes) and int(until_ms) >= self.process.runtime.wall_ms()

    def owner(self, position: str) -> str | None:
        """Implements `StoreServer.owner`."""
        [session] = self._look((b"HGET", self._layout.position(position)[1], b"owner"))
        return session.decode() if session else None

    def owned(self, position: str) -> Hashable:
        """Implements `StoreServer.owned`."""
        return tuple(self._look((b"HMGET", self._layout.position(position)[1], b"owner", b"epoch", b"running"))[0])

    def held(self, key: ClaimKey) -> tuple[Any, ...]:
        """Implements `StoreServer.held`."""
        [(shard, place)] = self._layout.places([key])
        *claims, name = self._layout.declared(shard, [place])
        if not self._layout.hash_keys:
            return tuple(self._look((b"GET", name)))
        return tuple(self._look((b"HGET", claims[-1], place), (b"HGET", name, place)))

    def _look(self, *commands: Sequence[bytes]) -> list[Any]:
        return self.redis.call(commands)

    def _replica(self) -> Callable[[], None]:
        return self.redis.replica()

    def _client(self, process: Process) -> LuaClient:
        def ask(commands: Sequence[Sequence[bytes]]) -> list[Reply | ResponseError]:
            try:
                return self.network.ask(process, lambda: self.redis.call(commands))
            except NoAnswer:
                raise RedisTimeoutError("Timeout reading from socket") from None
            except Refused as refused:
                raise AuthenticationError(str(refused)) from None

        return LuaClient(ask, self._timeout_s)
